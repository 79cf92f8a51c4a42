//! Costs of requests if the drive chooses the order of its writes. Each write of data that needs a positioning pays the
//! mean of all such writes.
//!
//! **Intuition.** A drive with a full queue serves what is near. Which account's write makes it move far is then
//! chance, and an unlucky account should not pay for the others. **Rule.** As [`CostModel`], but of a write of a file
//! that needs a positioning the positioning is the moving average. **Complication.** A write that continues at the head
//! pays none, or sequential writers would pay for random ones. Reads and metadata pay their own cost.

use crate::cost_model::CostModel;
use plimsoll_core::{BlockRequest, DeviceProfile, FileId, Operation};

/// Of the mean of what positioning costs, the part that is the last one. Calls go to the disk in batches, and the first
/// writes after the journal's move far. A mean over less than some batches would charge the first writer.
const MEAN_PART: f64 = 1.0 / 256.0;

/// See the module's text.
pub struct MeanPositioning {
    model: CostModel,
    mean: f64,
}

impl MeanPositioning {
    /// Of this device; at first the mean is a whole run's.
    pub fn new(device: &DeviceProfile) -> MeanPositioning {
        let mean = device.sequential_bytes_per_second / device.worst_case_runs_per_second;
        MeanPositioning { model: CostModel::new(device), mean }
    }

    /// What positioning costs a write, on average, normalised bytes.
    pub fn mean(&self) -> u64 {
        self.mean as u64
    }

    /// What a request costs that is dispatched now, normalised bytes.
    pub fn cost(&mut self, request: &BlockRequest) -> u64 {
        let mut cost = self.model.cost(request);
        let is_data = request.file.is_some_and(|file| file != FileId::DEVICE);
        if is_data && request.operation == Operation::Write && cost.positioning > 0 {
            self.mean += (cost.positioning as f64 - self.mean) * MEAN_PART;
            cost.positioning = self.mean as u64;
        }
        cost.transfer + cost.positioning
    }
}

#[cfg(test)]
mod tests {
    //! Breaks that were planted, and that turned the test red: sequential writes pay the mean too; metadata does.

    use super::*;
    use crate::testing::disk;
    use plimsoll_core::{AccountId, RequestId, Time};

    #[test]
    fn writes_of_files_pay_the_mean() {
        let device = disk(8);
        let (mut means, mut model) = (MeanPositioning::new(&device), CostModel::new(&device));
        let mut paid = [0; 2];
        for number in 0..1000u64 {
            // Far, near, and in sequence.
            let place = if number % 3 == 0 { number % 2 * (1 << 39) } else { (1 << 38) + number * 4096 };
            let operation = if number % 10 == 0 { Operation::Read } else { Operation::Write };
            let request = BlockRequest::new(RequestId(number), AccountId(1), operation, place, 4096, Time::ZERO);
            let file = Some(FileId(u64::from(number % 7 != 0)));
            let request = BlockRequest { file, ..request };
            let (cost, exact) = (means.cost(&request), model.cost(&request));
            let pays_mean = operation == Operation::Write && file == Some(FileId(1)) && exact.positioning > 0;
            let expected = if pays_mean { means.mean() } else { exact.positioning };
            assert_eq!(cost, 4096 + expected, "request {number}");
            if pays_mean {
                paid = [paid[0] + expected, paid[1] + exact.positioning];
            }
        }
        let ratio = paid[0] as f64 / paid[1] as f64;
        assert!((0.97..1.03).contains(&ratio), "in all what it costs: {ratio}");
    }
}
