//! `plimsoll record`: what the running daemon's device is asked to do, as a trace.
//!
//! The daemon sends records over the control socket; this process writes the file, with its own user's rights.

use super::{connect, print, unexpected};
use crate::arguments::RecordArguments;
use crate::control::client::Client;
use crate::control::protocol::{Record, RecordingEnd, RecordingStart, Request, Response};
use crate::outcome::{Failure, Outcome};
use crate::signals;
use plimsoll_core::{Operation, Span, Time};
use plimsoll_traces::{Format, TraceRecord, WriteError, Writer};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What became of the records.
#[derive(Default)]
struct Tally {
    written: u64,
    /// Requests that the format cannot say.
    left_out: u64,
    lost: u64,
}

pub(super) fn run(arguments: &RecordArguments) -> Outcome {
    let mut client = connect(&arguments.daemon)?;
    let request = Request::Record { device: arguments.device.clone() };
    // The file is made once the daemon has agreed, so that a mistyped device costs no user a file. A user that sees it
    // may end the recording.
    let Response::Recording(start) = client.ask(&request)? else { return Err(unexpected()) };
    end_when_told(&client, arguments.seconds)?;
    let file = arguments.out.display();
    let wrong = |error: WriteError| Failure::Failed(format!("{file}: {error}"));
    let created = File::create(&arguments.out).map_err(|error| Failure::BadInput(format!("--out {file}: {error}")))?;
    let mut writer = Writer::new(arguments.format, BufWriter::new(created)).map_err(wrong)?;
    name_volumes(&mut writer, &start).map_err(wrong)?;

    let (mut tally, base) = (Tally::default(), Span::from_nanos(base_ns(arguments.format, &start)));
    let end = loop {
        match client.next_line() {
            Ok(Response::Records(batch)) => {
                tally.lost = batch.lost;
                for record in &batch.records {
                    write(&mut writer, record, base, &mut tally).map_err(wrong)?;
                }
            }
            Ok(Response::Recorded(end)) => break Ok(end),
            Ok(_) => break Err(unexpected()),
            Err(failure) => break Err(failure),
        }
    };
    // After any failure too, the file has all records that came.
    writer.finish().map_err(wrong)?;
    let device = &start.device;
    match end {
        Ok(RecordingEnd { lost, daemon_ended, .. }) => {
            tally.lost = lost;
            let why = if daemon_ended { "; the daemon has ended" } else { "" };
            print(format!("{file}: {}, of {device}{why}", in_words(&tally, arguments.format)))
        }
        Err(failure) => {
            let tally = in_words(&tally, arguments.format);
            Err(Failure::Failed(format!("{failure}; {file} has what came until then: {tally}, of {device}")))
        }
    }
}

/// Formats with names get the volumes'.
fn name_volumes<W: Write>(writer: &mut Writer<W>, start: &RecordingStart) -> Result<(), WriteError> {
    start.volumes.iter().try_for_each(|volume| writer.name_device(volume.number, &volume.name))
}

/// Ends the recording on Ctrl-C, SIGTERM, or after `seconds`, by telling the daemon that no request follows.
fn end_when_told(client: &Client, seconds: Option<u64>) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot listen for signals: {error}"));
    let ending = client.ending().map_err(|error| failed(&error))?;
    let (stop, stopped) = channel::<()>();
    // The handler keeps the sender, so a wait without a limit ends with a signal only.
    signals::listen(move |_| {
        // The wait may be over already.
        let _ = stop.send(());
    })?;
    let wait = move || {
        let _ = match seconds {
            Some(seconds) => stopped.recv_timeout(Duration::from_secs(seconds)).map_err(drop),
            None => stopped.recv().map_err(drop),
        };
        // A daemon that is gone need not be told.
        let _ = ending.shutdown(std::net::Shutdown::Write);
    };
    std::thread::Builder::new().name("record-end".into()).spawn(wait).map_err(|error| failed(&error))?;
    Ok(())
}

/// The origin of a trace's times: the calendar, or the start of the recording.
fn base_ns(format: Format, start: &RecordingStart) -> u64 {
    if format == Format::Msr { start.unix_ns } else { 0 }
}

fn write<W: Write>(writer: &mut Writer<W>, record: &Record, base: Span, tally: &mut Tally) -> Result<(), WriteError> {
    let Record(at_ns, operation, volume, offset, length, latency_ns) = record;
    let operation = match operation.as_ref() {
        "read" => Operation::Read,
        "write" => Operation::Write,
        "flush" => Operation::Flush,
        "trim" => Operation::Trim,
        _ => Operation::WriteZeroes,
    };
    let at = Time::ZERO + base + Span::from_nanos(*at_ns);
    let request = TraceRecord {
        device: *volume,
        response: latency_ns.map(Span::from_nanos),
        ..TraceRecord::new(at, operation, *offset, u64::from(*length))
    };
    match writer.write(&request) {
        Ok(()) => tally.written += 1,
        Err(WriteError::Unwritable { .. }) => tally.left_out += 1,
        Err(error) => return Err(error),
    }
    Ok(())
}

fn in_words(tally: &Tally, format: Format) -> String {
    let mut text = format!("{} requests", tally.written);
    if tally.left_out > 0 {
        text += &format!(", {} left out, which {format} cannot say", tally.left_out);
    }
    if tally.lost > 0 {
        text += &format!(", {} lost, because this process or its disk was too slow", tally.lost);
    }
    text
}
