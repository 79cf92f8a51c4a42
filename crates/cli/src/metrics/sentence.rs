//! What `plimsoll status` says in sentences: the second table, of which a row is a sentence over several metrics.

use super::devices::{DAEMON as DAEMON_ROWS, DEVICE as DEVICE_ROWS};
use super::executor::{EXECUTOR as EXECUTOR_ROWS, QUEUE as QUEUE_ROWS, SERVICE_THREAD as SERVICE_THREAD_ROWS};
use super::metric::Rows;
use super::reading::Reading;
use super::tenants::{LOSS as LOSS_ROWS, TENANT as TENANT_ROWS, TENANT_CGROUP as TENANT_CGROUP_ROWS};
use super::volumes::{SERVED_VOLUME as SERVED_VOLUME_ROWS, VOLUME as VOLUME_ROWS};
use plimsoll_core::{Span, shown};
use plimsoll_engine::EmulationStatus;

/// A run that takes longer than that is said in a line of its own: no step takes a hundredth of it.
const LONG: Span = Span::from_secs(1);

/// A part of what is said of a subject. In braces stand the metrics that it uses:
///
/// | in braces | what is said |
/// | --- | --- |
/// | `field` | the field with its unit; all of a list of texts; of a list of subjects its column, or how many there are |
/// | `field.inside` | the field of the subject in it, or the sum over the list of subjects in it |
/// | `sum/count` | the mean |
/// | `#` | the number of the subject in its list |
pub struct Sentence {
    /// What is said.
    pub text: &'static str,
    /// Of which subjects it is said.
    pub when: fn(&Reading) -> bool,
}

const fn always(text: &'static str) -> Sentence {
    Sentence { text, when: |_| true }
}

const fn when(text: &'static str, when: fn(&Reading) -> bool) -> Sentence {
    Sentence { text, when }
}

/// What is said of the subjects of a section.
pub struct Saying {
    /// The section.
    pub rows: &'static dyn Rows,
    /// Its sentences, in their order.
    pub sentences: &'static [Sentence],
}

/// Of the daemon.
pub static DAEMON: Saying =
    Saying { rows: &DAEMON_ROWS, sentences: &[always("plimsoll {version}, process {process}, {configuration}\n")] };

/// Of the executor.
pub static EXECUTOR: Saying = Saying {
    rows: &EXECUTOR_ROWS,
    sentences: &[
        always("executor: {policy}, {threads} service thread"),
        when("s", |executor| executor.subjects("threads").len() != 1),
        always(", {threads.done} requests done, {threads.preempted} times preempted, {threads.resumed} times resumed"),
    ],
};

/// Of a queue that is used.
pub static QUEUE: Saying = Saying {
    rows: &QUEUE_ROWS,
    sentences: &[when("; {queue}: {depth} wait, {waited_ns/served} on average", |queue| {
        queue.count("served") > 0 || queue.count("depth") > 0
    })],
};

/// Of a service thread that does not get on.
pub static SERVICE_THREAD: Saying = Saying {
    rows: &SERVICE_THREAD_ROWS,
    sentences: &[when("\nexecutor: service thread {#} has been at one request for {running_ns}", |thread| {
        thread.span("running_ns").is_some_and(|ran| ran >= LONG)
    })],
};

/// Why the figures of the accounts of a volume are not to be believed.
pub static LOSS: Saying = Saying {
    rows: &LOSS_ROWS,
    sentences: &[always(
        "{volume}: BOOKS ARE OFF: tags found no room for {registrations} processes of tenants (charged to others), \
         {events} events (charged to no account), {entries} dirty pages or blocks of metadata (to the last writers of the file)\n",
    )],
};

/// Of a device.
pub static DEVICE: Saying = Saying {
    rows: &DEVICE_ROWS,
    sentences: &[
        always("device {device}: scheduler {scheduler}, up {uptime_ns}, {requests_under_way} requests under way"),
        when(
            ", OVERLOADED: slower than what was promised on it, all reserves get {reserves_kept} of themselves, \
             {overload_ns} behind",
            |device| device.count("overload_ns") > 0 && !are_kept(device),
        ),
        when(", reserves fell {overload_ns} behind while it was slower than what was promised on it", |device| {
            device.count("overload_ns") > 0 && are_kept(device)
        }),
        when(", emulation p99 {emulation.lateness_ns_p99} late", |device| !device.subjects("emulation").is_empty()),
        when(" TOO LATE: this machine is too busy to emulate it", |device| {
            let (replies, late_replies) = (device.count("emulation.replies"), device.count("emulation.late_replies"));
            !EmulationStatus { replies, late_replies, ..EmulationStatus::default() }.is_true()
        }),
        always("\n"),
    ],
};

/// Of a volume: what serves it, and how many use it.
pub static SERVED_VOLUME: Saying =
    Saying { rows: &SERVED_VOLUME_ROWS, sentences: &[always("volume {name}: {served_as}, {front_ends} users\n")] };

/// Of a volume that is read ahead.
pub static VOLUME: Saying = Saying {
    rows: &VOLUME_ROWS,
    sentences: &[when(
        "volume {name}: {read_ahead.fetched_bytes} read ahead, {read_ahead.used_bytes} of that used, \
         {read_ahead.wasted_bytes} dropped unread\n",
        |volume| !volume.subjects("read_ahead").is_empty(),
    )],
};

/// What holds a tenant, and why the freezer does not.
pub static TENANT: Saying = Saying {
    rows: &TENANT_ROWS,
    sentences: &[
        always("tenant {path}: held by "),
        when("{held_by}", |tenant| !tenant.at("held_by").items().is_empty()),
        when("nothing", |tenant| tenant.at("held_by").items().is_empty()),
        when("; NOT HELD by the freezer: {not_held}", |tenant| !tenant.text("not_held").is_empty()),
    ],
};

/// Of a cgroup of a tenant that does not stop.
pub static TENANT_CGROUP: Saying = Saying {
    rows: &TENANT_CGROUP_ROWS,
    sentences: &[when("; a process in {directory} does not stop: it is stopped, traced or in the kernel", |cgroup| {
        cgroup.is("is_late")
    })],
};

fn are_kept(device: &Reading) -> bool {
    device.at("reserves_kept").number().is_none_or(|kept| kept >= 1.0)
}

impl Saying {
    /// What is said of `subject`.
    pub fn of(&self, subject: &Reading) -> String {
        self.of_each([subject])
    }

    /// What is said of `subjects`, one after the other.
    pub fn of_each<'s>(&self, subjects: impl IntoIterator<Item = &'s Reading>) -> String {
        let subjects = subjects.into_iter().enumerate();
        let said = subjects.flat_map(|(number, subject)| {
            let sentences = self.sentences.iter().filter(|sentence| (sentence.when)(subject));
            sentences.map(move |sentence| self.filled(sentence.text, subject, number))
        });
        said.collect()
    }

    fn filled(&self, text: &str, subject: &Reading, number: usize) -> String {
        let mut parts = text.split(['{', '}']);
        let mut said = String::new();
        while let Some(words) = parts.next() {
            said.push_str(words);
            if let Some(name) = parts.next() {
                let value = self.value(name, subject, number).unwrap_or_else(|| "-".to_owned());
                said.push_str(&shown(&value));
            }
        }
        said
    }

    /// What stands for `name` in braces; `None` if no row has such a field.
    pub fn value(&self, name: &str, subject: &Reading, number: usize) -> Option<String> {
        if name == "#" {
            return Some(number.to_string());
        }
        if let Some((sum, count)) = name.split_once('/') {
            let (sum, count) = (self.rows.find(sum)?, self.rows.find(count)?);
            let mean = subject.count(sum.field) / subject.count(count.field).max(1);
            return Some(sum.show(&mean.into()));
        }
        let Some(metric) = self.rows.find(name) else {
            let (list, field) = name.split_once('.')?;
            let inside = self.rows.find(list)?.inside?.find(field)?;
            let sum: u64 = subject.subjects(list).iter().map(|subject| subject.count(field)).sum();
            return Some(inside.show(&sum.into()));
        };
        Some(match (metric.inside, &metric.columns[0]) {
            (Some(_), Some(column)) => column.cell(metric, subject),
            (Some(_), None) => subject.subjects(name).len().to_string(),
            (None, _) => metric.shown(subject),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted break: a sentence names a field that no row has, red.
    #[test]
    fn sentences_use_metrics_of_their_sections() {
        let of_daemon = [&DAEMON, &EXECUTOR, &QUEUE, &SERVICE_THREAD, &LOSS, &DEVICE, &SERVED_VOLUME, &VOLUME];
        for saying in of_daemon.into_iter().chain([&TENANT, &TENANT_CGROUP]) {
            let names = saying.sentences.iter().flat_map(|sentence| sentence.text.split(['{', '}']).skip(1).step_by(2));
            for name in names {
                assert!(saying.value(name, &Reading::Absent, 0).is_some(), "{name}");
            }
        }
        assert_eq!(QUEUE.value("waited_ns/new", &Reading::Absent, 0), None);
        assert_eq!(EXECUTOR.value("threads.new", &Reading::Absent, 0), None);
    }
}
