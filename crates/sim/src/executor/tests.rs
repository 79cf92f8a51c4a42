use super::wait::*;
use super::*;
use proptest::prelude::*;
use std::rc::Rc;

/// Runs until nothing happens any more.
fn run(executor: &Executor) {
    loop {
        executor.run_ready();
        match executor.next_timer() {
            Some(at) => executor.advance(at),
            None => break,
        }
    }
}

proptest! {
    /// The oracle: the naps of all tasks as a list, sorted by when they end; equal ends by when they began.
    #[test]
    fn naps_end_when_a_sorted_list_says(naps in proptest::collection::vec(proptest::collection::vec(0u64..20, 1..8), 1..8)) {
        let executor = Rc::new(Executor::default());
        let log = Rc::new(RefCell::new(Vec::new()));
        for (task, naps) in naps.iter().cloned().enumerate() {
            let (executor_inside, log) = (executor.clone(), log.clone());
            executor.spawn(async move {
                for nap in naps {
                    executor_inside.sleep(Span::from_nanos(nap)).await;
                    log.borrow_mut().push((executor_inside.now().as_nanos(), task));
                }
            });
        }
        run(&executor);
        // Each task goes as far as it can; then the task that wakes first, and of several the one that lay down first.
        let mut expected = Vec::new();
        let mut states: Vec<(usize, u64)> = vec![(0, 0); naps.len()];
        let mut asleep: Vec<(u64, u64, usize)> = Vec::new();
        let mut sequence = 0;
        let mut go = |task: usize, expected: &mut Vec<_>, asleep: &mut Vec<_>| {
            let (next, now) = &mut states[task];
            while *next < naps[task].len() {
                let nap = naps[task][*next];
                *next += 1;
                if nap > 0 {
                    *now += nap;
                    asleep.push((*now, sequence, task));
                    sequence += 1;
                    return;
                }
                expected.push((*now, task));
            }
        };
        (0..naps.len()).for_each(|task| go(task, &mut expected, &mut asleep));
        while let Some(&first) = asleep.iter().min() {
            asleep.retain(|&other| other != first);
            expected.push((first.0, first.2));
            go(first.2, &mut expected, &mut asleep);
        }
        prop_assert_eq!(&*log.borrow(), &expected);
    }

    #[test]
    fn a_semaphore_is_never_overdrawn_and_serves_in_order(
        units in 1u64..4, holds in proptest::collection::vec(1u64..10, 1..30),
    ) {
        let executor = Rc::new(Executor::default());
        let semaphore = Rc::new(Semaphore::new(units));
        let (held, order) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
        for (task, hold) in holds.iter().copied().enumerate() {
            let (inside, semaphore, held, order) = (executor.clone(), semaphore.clone(), held.clone(), order.clone());
            executor.spawn(async move {
                semaphore.acquire(&inside).await;
                order.borrow_mut().push(task);
                held.set(held.get() + 1);
                assert!(held.get() <= units);
                inside.sleep(Span::from_nanos(hold)).await;
                held.set(held.get() - 1);
                semaphore.release(&inside);
            });
        }
        run(&executor);
        prop_assert_eq!(&*order.borrow(), &(0..holds.len()).collect::<Vec<_>>());
        prop_assert_eq!(semaphore.available(), units);
    }
}

#[test]
fn a_name_outlives_its_task_without_meaning_the_next_one() {
    let executor = Rc::new(Executor::default());
    let first = executor.spawn(async {});
    run(&executor);
    assert!(executor.has_ended(first));
    let inside = executor.clone();
    let second = executor.spawn(async move { inside.sleep(Span::from_nanos(5)).await });
    assert_eq!(second.index, first.index, "the place is used again");
    executor.run_ready();
    executor.wake(first);
    assert!(executor.ready.borrow().is_empty(), "the old name wakes no task");
    run(&executor);
    assert!(executor.has_ended(second));
}

#[test]
fn a_wake_too_many_ends_no_wait() {
    let executor = Rc::new(Executor::default());
    let (inside, queue) = (executor.clone(), Rc::new(WaitQueue::default()));
    let queue_inside = queue.clone();
    let task = executor.spawn(async move {
        queue_inside.wait(&inside).await;
        inside.sleep(Span::from_nanos(7)).await;
    });
    executor.run_ready();
    executor.wake(task);
    executor.run_ready();
    assert_eq!(queue.len(), 1);
    queue.wake_one(&executor);
    executor.run_ready();
    executor.wake(task);
    executor.run_ready();
    assert!(!executor.has_ended(task) && executor.next_timer() == Some(Time::from_nanos(7)));
    run(&executor);
    assert!(executor.has_ended(task));
}

#[test]
fn a_group_is_done_when_its_last_member_is() {
    let executor = Rc::new(Executor::default());
    let group = Group::default();
    for span in [5, 3, 9] {
        group.add();
        let (inside, member) = (executor.clone(), group.clone());
        executor.spawn(async move {
            inside.sleep(Span::from_nanos(span)).await;
            member.done(&inside);
        });
    }
    let (inside, done_at) = (executor.clone(), Rc::new(Cell::new(Time::ZERO)));
    let seen = done_at.clone();
    executor.spawn(async move {
        group.wait(&inside).await;
        seen.set(inside.now());
    });
    run(&executor);
    assert_eq!(done_at.get(), Time::from_nanos(9));
}

#[test]
fn a_wake_in_the_past_is_now_and_time_does_not_go_back() {
    let executor = Rc::new(Executor::default());
    let (inside, woken) = (executor.clone(), Rc::new(Cell::new(Time::ZERO)));
    let seen = woken.clone();
    executor.spawn(async move {
        inside.sleep(Span::from_nanos(100)).await;
        inside.sleep_until(Time::from_nanos(40)).await;
        inside.wake_at(Time::from_nanos(40), inside.current());
        seen.set(inside.now());
    });
    run(&executor);
    assert_eq!((woken.get(), executor.now()), (Time::from_nanos(100), Time::from_nanos(100)));
}

/// Promise: sim-endless-run.
#[test]
#[should_panic(expected = "no time passes: a task of the kernel")]
fn two_tasks_that_wake_each_other_for_ever_are_found() {
    let executor = Rc::new(Executor::default());
    let queues = [Rc::new(WaitQueue::default()), Rc::new(WaitQueue::default())];
    for own in 0..2 {
        let (inside, queues) = (executor.clone(), queues.clone());
        executor.spawn(async move {
            loop {
                queues[1 - own].wake_one(&inside);
                queues[own].wait(&inside).await;
            }
        });
    }
    executor.run_ready();
}

/// As many steps as are allowed, again and again: time passes between them.
#[test]
fn steps_count_from_when_time_passed() {
    let executor = Executor::default();
    for nanosecond in 1..4 {
        (0..progress::STEPS_MAX).for_each(|_| executor.count_step());
        executor.advance(Time::from_nanos(nanosecond));
    }
}
