//! Requests of tenants: places, lengths, reads and writes, from a seed or a recorded trace.

use super::HostError;
use crate::scenario::TenantSetup;
use plimsoll_core::Operation;
use plimsoll_traces::TraceRecord;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::path::Path;

/// Random requests are aligned to this, or to their length if that is less: file systems' blocks. Bytes.
const ALIGNMENT_BYTES: u64 = 4096;
/// Requests of a trace that are used: more than a run of some seconds sends, and no run reads a million.
const TRACE_REQUESTS_MAX: usize = 200_000;
/// Longest request of a trace that is sent, as for tenants without one. Bytes.
const TRACE_LENGTH_BYTES_MAX: u64 = 64 << 20;

/// The requests of a tenant, one after the other without an end.
pub(super) struct Requests {
    /// What is sent, if it was recorded.
    trace: Vec<TraceRecord>,
    is_random: bool,
    length: u64,
    read_percent: u64,
    /// First byte, and the one behind the last.
    region: (u64, u64),
    random: Pcg64Mcg,
    /// Of a stream, the next byte; of a trace, the number of the next request.
    position: u64,
}

impl Requests {
    /// The requests of the tenant of this number in the scenario, on a device of `capacity_bytes`.
    ///
    /// # Errors
    /// Its trace is missing or cannot be read.
    pub(super) fn new(
        tenant: &TenantSetup,
        number: usize,
        capacity_bytes: u64,
        seed: u64,
    ) -> Result<Requests, HostError> {
        let byte = |fraction: f64| (capacity_bytes as f64 * fraction) as u64 / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
        let region = (byte(tenant.region.0), byte(tenant.region.1));
        let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | (number as u128) << 1 | 1);
        let trace = tenant.trace.as_deref().map_or(Ok(Vec::new()), |path| recorded(&tenant.name, path))?;
        let position = if trace.is_empty() { region.0 } else { random.next_u64() % trace.len() as u64 };
        Ok(Requests {
            trace,
            is_random: tenant.is_random,
            length: u64::from(tenant.length),
            read_percent: u64::from(tenant.read_percent),
            region,
            random,
            position,
        })
    }

    /// Where the next request goes, how long it is, in bytes, and whether it reads.
    pub(super) fn next(&mut self) -> (u64, u64, bool) {
        let (from, to) = self.region;
        if !self.trace.is_empty() {
            let record = self.trace[self.position as usize];
            self.position = (self.position + 1) % self.trace.len() as u64;
            // The device need not be the recorded one: what lies beyond the region starts again at its beginning.
            let offset = from + record.offset % (to - from).saturating_sub(record.length).max(1);
            return (offset, record.length, record.operation == Operation::Read);
        }
        let length = self.length;
        let offset = if self.is_random {
            let step = length.min(ALIGNMENT_BYTES);
            let places = (to - from).saturating_sub(length) / step + 1;
            from + self.random.next_u64() % places * step
        } else {
            let offset = if self.position + length > to { from } else { self.position };
            self.position = offset + length;
            offset
        };
        (offset, length, self.random.next_u64() % 100 < self.read_percent)
    }
}

/// The reads and writes of a tenant's trace.
fn recorded(tenant: &str, path: &Path) -> Result<Vec<TraceRecord>, HostError> {
    if !path.exists() {
        let another = format!("--set tenant.{tenant}.trace=PATH takes another");
        return Err(HostError::NotRun(format!("the trace {} is not there; {another}", path.display())));
    }
    let failed = |error: plimsoll_traces::TraceError| HostError::Failed(error.to_string());
    let reader = plimsoll_traces::open(path, None).map_err(failed)?;
    let is_sent = |record: &TraceRecord| {
        matches!(record.operation, Operation::Read | Operation::Write)
            && (1..=TRACE_LENGTH_BYTES_MAX).contains(&record.length)
    };
    let records: Result<Vec<_>, _> = reader.take(TRACE_REQUESTS_MAX).collect();
    let records: Vec<_> = records.map_err(failed)?.into_iter().filter(is_sent).collect();
    match records.is_empty() {
        true => Err(HostError::Failed(format!("the trace {} has neither reads nor writes", path.display()))),
        false => Ok(records),
    }
}
