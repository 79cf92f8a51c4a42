//! The reader's end of a recording: any thread takes out what the [tap](crate::tap) of an engine has put in.

use super::EngineHandle;
use crate::error::EngineError;
use crate::tap::{RecordedRequest, Source, connect};
use plimsoll_core::Time;

/// Default bound on events that wait for the reader: 32,768 requests in 3 MiB, a third of a second of the fastest
/// volumes (docs/performance.md).
pub const RECORDER_EVENTS_DEFAULT: usize = 65_536;

/// The reader's end: takes requests out, in the order of their arrival. Dropping it ends the recording.
pub struct Recording {
    engine: EngineHandle,
    number: u32,
    source: Source,
    volumes: Vec<(u32, String)>,
    started: Time,
}

impl EngineHandle {
    /// Records what the engine's device is asked to do, from now on. `events_max` events wait for the reader at most; a
    /// request has two.
    ///
    /// # Errors
    /// Another recording of the device is under way, or the engine has stopped.
    pub fn record(&self, events_max: usize) -> Result<Recording, EngineError> {
        // The queue is made here, not on the engine's thread.
        let (tap, source) = connect(events_max, 0);
        let (number, volumes, started) = self.call(move |engine| {
            let (number, volumes) = engine.conductor.begin_recording(tap)?;
            Ok::<_, EngineError>((number, volumes, engine.conductor.ground.now))
        })??;
        Ok(Recording { engine: self.clone(), number, source, volumes, started })
    }
}

impl Recording {
    /// The volumes on the device, by number.
    pub fn volumes(&self) -> &[(u32, String)] {
        &self.volumes
    }

    /// When the recording began, since the engine started.
    pub fn started(&self) -> Time {
        self.started
    }

    /// Takes what is complete, at most `count` requests; never waits. A request comes out once all that arrived before
    /// it are done.
    pub fn take(&mut self, count: usize) -> Vec<RecordedRequest> {
        self.source.take(count)
    }

    /// Requests that were not recorded because the reader was too slow.
    pub fn lost(&self) -> u64 {
        self.source.lost()
    }

    /// Whether the engine has ended the recording by stopping itself. There may still be events to take.
    pub fn is_over(&self) -> bool {
        self.source.is_over
    }

    /// Ends the recording. What waits can still be taken; what is under way comes out without a latency.
    pub fn stop(&mut self) {
        let number = self.number;
        // An engine that has stopped has ended the recording itself.
        let _ = self.engine.call(move |engine| engine.conductor.end_recording(number));
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop();
    }
}
