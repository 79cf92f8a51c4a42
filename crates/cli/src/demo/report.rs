//! What the demonstration measured, and whether it shows isolation.

use super::disk::{Disk, MODEL, RESERVE_PERCENT, Served};
use super::tenant::Transaction;
use super::{ALONE_SECONDS, Stage, mebibytes};
use crate::outcome::Failure;
use crate::table::Table;
use plimsoll_core::Span;
use serde::Serialize;
use std::fmt;

/// Part of its reserve that the small writer must have with Plimsoll; of its demand when alone, if that is less.
const RESERVE_PART_MIN: f64 = 0.95;
/// Plimsoll must make the slowest hundredth of its transactions faster by this factor.
const LATENCY_FACTOR_MIN: f64 = 4.0;

/// One second.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// When it began, seconds since the start.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// What the small writer did.
    pub transactions_per_second: f64,
    /// What it had of the disk.
    pub runs_per_second: f64,
    /// What the bulk writer had of it.
    pub backup_bytes_per_second: f64,
    /// The drive was emulated truly meanwhile: the second counts.
    pub is_true: bool,
}

impl Sample {
    /// What happened between two looks: when each was, transactions and service so far.
    pub(super) fn between(before: &(Span, u64, Served), after: &(Span, u64, Served)) -> Sample {
        let elapsed_s = after.0.saturating_sub(before.0).as_secs_f64();
        let per_second = |before: u64, after: u64| (after - before) as f64 / elapsed_s;
        Sample {
            start_s: before.0.as_secs_f64(),
            end_s: after.0.as_secs_f64(),
            transactions_per_second: per_second(before.1, after.1),
            runs_per_second: per_second(before.2.transactions_runs, after.2.transactions_runs),
            backup_bytes_per_second: per_second(before.2.backup_bytes, after.2.backup_bytes),
            is_true: after.2.emulation.was_true_since(&before.2.emulation),
        }
    }

    fn overlaps(&self, transaction: &Transaction) -> bool {
        let (done_s, latency_s) = (transaction.done.as_secs_f64(), transaction.latency.as_secs_f64());
        done_s - latency_s < self.end_s && self.start_s < done_s
    }
}

/// One stage.
#[derive(Clone, Debug, Serialize)]
pub struct StageReport {
    /// What it is called.
    pub stage: &'static str,
    /// The scheduler in charge.
    pub scheduler: &'static str,
    /// Transactions per second.
    pub transactions_per_second: f64,
    /// The median transaction, milliseconds.
    pub latency_ms_p50: f64,
    /// The slowest hundredth begins here.
    pub latency_ms_p99: f64,
    /// The slowest.
    pub latency_ms_max: f64,
    /// What the small writer had of the disk, runs per second.
    pub runs_per_second: f64,
    /// What the bulk writer had of it, bytes per second.
    pub backup_bytes_per_second: f64,
    /// Second by second, those that don't count too.
    pub samples: Vec<Sample>,
    /// How many count.
    pub true_seconds: u64,
}

/// Something that must hold.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What it says.
    pub claim: String,
    /// What was measured.
    pub measured: String,
    /// Whether it holds.
    pub holds: bool,
}

/// The whole demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What the disk behaves like.
    pub device: &'static str,
    /// The small writer's reserve, runs per second.
    pub reserve_runs_per_second: f64,
    /// Alone, without Plimsoll, with it.
    pub stages: Vec<StageReport>,
    /// What must hold.
    pub claims: Vec<Claim>,
    /// What this machine could not do.
    pub not_run: Option<String>,
    /// Seconds that don't count, because this machine was too busy to emulate the drive.
    pub late_seconds: u64,
    /// Whether too many seconds don't count, so that the stage shows nothing.
    pub is_late: bool,
}

fn quantile(sorted: &[Span], quantile: f64) -> f64 {
    let index = ((sorted.len() as f64 * quantile).ceil() as usize).saturating_sub(1);
    sorted.get(index).map_or(f64::NAN, |latency| latency.as_millis_f64())
}

impl StageReport {
    fn new(stage: Stage, samples: Vec<Sample>, transactions: &[Transaction]) -> StageReport {
        let (start_s, end_s) = (samples[0].start_s, samples[samples.len() - 1].end_s);
        let counts = |one: &&Transaction| {
            (start_s..end_s).contains(&one.done.as_secs_f64())
                && !samples.iter().any(|sample| !sample.is_true && sample.overlaps(one))
        };
        let mut latencies: Vec<Span> = transactions.iter().filter(counts).map(|one| one.latency).collect();
        latencies.sort();
        let true_samples = || samples.iter().filter(|sample| sample.is_true);
        let true_seconds = true_samples().count() as u64;
        let mean = |of: fn(&Sample) -> f64| true_samples().map(of).sum::<f64>() / true_seconds as f64;
        StageReport {
            stage: stage.title(),
            scheduler: stage.scheduler(),
            transactions_per_second: mean(|sample| sample.transactions_per_second),
            latency_ms_p50: quantile(&latencies, 0.5),
            latency_ms_p99: quantile(&latencies, 0.99),
            latency_ms_max: quantile(&latencies, 1.0),
            runs_per_second: mean(|sample| sample.runs_per_second),
            backup_bytes_per_second: mean(|sample| sample.backup_bytes_per_second),
            samples,
            true_seconds,
        }
    }
}

impl Report {
    pub(super) fn new(
        disk: &Disk,
        seconds: u64,
        stages: Vec<(Stage, Vec<Sample>)>,
        transactions: &[Transaction],
    ) -> Report {
        let worst_case = plimsoll_devices::build(MODEL, 0).map_or(0.0, |m| m.profile().worst_case_runs_per_second);
        let reserve_runs_per_second = RESERVE_PERCENT / 100.0 * worst_case;
        let is_late = stages.iter().any(|(stage, samples)| {
            let wanted = if *stage == Stage::Alone { ALONE_SECONDS } else { seconds };
            (samples.iter().filter(|sample| sample.is_true).count() as u64) < wanted
        });
        let stages: Vec<StageReport> =
            stages.into_iter().map(|(stage, samples)| StageReport::new(stage, samples, transactions)).collect();
        let claims = claims(&stages, reserve_runs_per_second);
        let late_seconds = stages.iter().map(|stage| stage.samples.len() as u64 - stage.true_seconds).sum();
        Report {
            device: MODEL,
            reserve_runs_per_second,
            stages,
            claims,
            not_run: disk.not_run().map(|why| format!("file systems: {why}; the tenants wrote over NBD instead")),
            late_seconds,
            is_late,
        }
    }

    /// Why each stage has the numbers that it has, in words, a line each.
    fn reasons(&self) -> Vec<String> {
        let [alone, without, with] = &self.stages[..] else { return Vec::new() };
        // What a transaction costs the drive: what it wrote, and what made that durable.
        let runs = with.runs_per_second / with.transactions_per_second;
        let (reserve, due) = (self.reserve_runs_per_second, self.reserve_runs_per_second / runs);
        vec![
            "Why:".to_owned(),
            format!(
                "  {}: a transaction takes the drive {:.1} runs, one after the other: {:.0} ms.",
                alone.stage, runs, alone.latency_ms_p50
            ),
            format!(
                "  {}: the drive serves what came first, so a transaction waits behind the large writes of the backup: {:.0} ms.",
                without.stage, without.latency_ms_p50
            ),
            format!(
                "  {}: the reserve of {reserve:.0} runs/s is {due:.0} transactions a second of {runs:.1} runs, so one in {:.0} ms.",
                with.stage,
                1000.0 / due
            ),
            "  The backup has all that is left. A larger reserve brings shorter transactions and a slower backup.\n"
                .to_owned(),
        ]
    }

    /// Ends the command: success only if isolation was measured.
    ///
    /// # Errors
    /// A claim does not hold, or the machine was too slow for the emulation to mean anything.
    pub fn verdict(&self) -> Result<(), Failure> {
        if self.is_late {
            let late = self.late_seconds;
            return Err(Failure::NotRun(format!(
                "the machine is too busy: in {late} seconds the emulated drive answered late"
            )));
        }
        match self.claims.iter().find(|claim| !claim.holds) {
            Some(claim) => Err(Failure::Failed(format!("does not hold: {}: {}", claim.claim, claim.measured))),
            None => Ok(()),
        }
    }
}

fn claims(stages: &[StageReport], reserve_runs_per_second: f64) -> Vec<Claim> {
    let [alone, without, with] = stages else { return Vec::new() };
    let due = RESERVE_PART_MIN * reserve_runs_per_second.min(alone.runs_per_second);
    let factor = without.latency_ms_p99 / with.latency_ms_p99;
    vec![
        Claim {
            claim: format!("with Plimsoll the small writer has its reserve: at least {due:.0} runs/s"),
            measured: format!("{:.0} runs/s ({:.0} without)", with.runs_per_second, without.runs_per_second),
            holds: with.runs_per_second >= due,
        },
        Claim {
            claim: format!("its slowest hundredth is at least {LATENCY_FACTOR_MIN} times faster than without"),
            measured: format!("{factor:.1} times"),
            holds: factor >= LATENCY_FACTOR_MIN,
        },
    ]
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "Two tenants on one disk that behaves like {}:", self.device)?;
        writeln!(
            out,
            "  transactions  4 KiB and fsync, again and again; reserve {:.0} runs/s",
            self.reserve_runs_per_second
        )?;
        writeln!(out, "  backup        four large files at once; no reserve\n")?;
        let mut table = Table::new(&["transactions", ">per second", ">median", ">p99", ">slowest", ">disk", ">backup"]);
        for stage in &self.stages {
            let milliseconds = |value: f64| format!("{value:.0} ms");
            table.row([
                stage.stage.to_owned(),
                format!("{:.1}", stage.transactions_per_second),
                milliseconds(stage.latency_ms_p50),
                milliseconds(stage.latency_ms_p99),
                milliseconds(stage.latency_ms_max),
                format!("{:.0} runs/s", stage.runs_per_second),
                format!("{}/s", mebibytes(stage.backup_bytes_per_second)),
            ]);
        }
        writeln!(out, "{table}")?;
        self.reasons().iter().try_for_each(|reason| writeln!(out, "{reason}"))?;
        for claim in &self.claims {
            let verdict = if claim.holds { "holds" } else { "DOES NOT HOLD" };
            writeln!(out, "{verdict}: {}: {}", claim.claim, claim.measured)?;
        }
        if self.late_seconds > 0 {
            let late = self.late_seconds;
            writeln!(out, "not counted: {late} seconds in which this machine was too busy to emulate the drive")?;
        }
        self.not_run.iter().try_for_each(|what| writeln!(out, "not run: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(stage: Stage, transactions_per_second: f64, latency_ms_p50: f64, runs_per_second: f64) -> StageReport {
        StageReport {
            stage: stage.title(),
            scheduler: stage.scheduler(),
            transactions_per_second,
            latency_ms_p50,
            latency_ms_p99: latency_ms_p50,
            latency_ms_max: latency_ms_p50,
            runs_per_second,
            backup_bytes_per_second: 1e6,
            samples: Vec::new(),
            true_seconds: 10,
        }
    }

    #[test]
    fn each_number_is_explained_by_what_a_transaction_costs_and_what_is_reserved() {
        let stages = vec![
            stage(Stage::Alone, 40.0, 25.0, 80.0),
            stage(Stage::Without, 2.0, 600.0, 4.0),
            stage(Stage::With, 11.0, 93.0, 22.0),
        ];
        let report = Report {
            device: MODEL,
            reserve_runs_per_second: 22.0,
            stages,
            claims: Vec::new(),
            not_run: None,
            late_seconds: 0,
            is_late: false,
        };
        let text = report.to_string();
        for part in [
            "alone: a transaction takes the drive 2.0 runs, one after the other: 25 ms.",
            "behind the large writes of the backup: 600 ms.",
            "the reserve of 22 runs/s is 11 transactions a second of 2.0 runs, so one in 91 ms.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(Report { stages: Vec::new(), ..report }.to_string().contains("Two tenants"), "no stage, no reason");
    }
}
