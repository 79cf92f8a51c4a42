use super::*;
use crate::results::{RunResult, Source};
use plimsoll_core::{Span, Time};
use std::sync::Arc;

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Ten seconds: `a` reads 1000 bytes a second, twice as many under the second scheduler, each in 10 ms; `b` writes
/// 500 and ends after 4 s.
fn run(scheduler: &str, factor: u64, is_rehearsal: bool) -> Rc<RunOf> {
    let (mut a, mut b) = (Source::default(), Source::default());
    for second in 0..10 {
        a.record("read", at(second * 1000), Span::from_millis(10), 1000 * factor);
        b.record("write", at(second * 1000 + 500), Span::from_millis(1 + second), 500);
    }
    b.ended = Some(at(4000));
    let sources = [("a".to_owned(), a), ("b".to_owned(), b)].into_iter().collect();
    let result = RunResult {
        cache: Default::default(),
        cache_units: 0,
        hash: Some(1),
        sources,
        cpu_cores: 1.5,
        device_busy: 0.25,
        priority_shares: [0.0, 0.0, 0.0, 0.0, 0.75, 0.0, 0.0, 0.125],
        tag_bytes_mean: 3e6,
        far_lines: 5.5,
        restarts: [0.8, 0.1, 0.06, 0.04],
        consistency_points: 12.0,
        log_waits: 34.0,
        tag_bytes_max: 5e6,
    };
    Rc::new(RunOf {
        labels: vec![("scheduler".into(), scheduler.into()), ("load".into(), "random read".into())],
        sources: ["a", "b"].map(str::to_owned).into(),
        window: Window { from: 2, to: 10 },
        outcome: if is_rehearsal { Outcome::Rehearsed } else { Outcome::Measured(Arc::new(result)) },
    })
}

fn context(is_rehearsal: bool) -> Context {
    let runs = vec![run("noop", 1, is_rehearsal), run("cfq", 2, is_rehearsal)];
    Context { runs: Rc::new(runs), paper: Some(138.0), x: Some("cfq".into()) }
}

fn number(text: &str) -> Result<f64, String> {
    Expression::new(text).number(&context(false))
}

/// Red if turns begin with the window, if the first second is left out, and if they last one second.
#[test]
fn turns_are_seconds_that_come_again() {
    let mut source = Source::default();
    (0..10).for_each(|second| source.record("write", at(second * 1000), Span::from_millis(1), second));
    let result = RunResult { sources: [("a".to_owned(), source)].into(), ..RunResult::default() };
    let run = RunOf {
        labels: Vec::new(),
        sources: ["a".to_owned()].into(),
        window: Window { from: 2, to: 10 },
        outcome: Outcome::Measured(Arc::new(result)),
    };
    let context = Context { runs: Rc::new(vec![Rc::new(run)]), paper: None, x: None };
    let number = |text: &str| Expression::new(text).number(&context);
    // Seconds 2, 5, 6 and 9; 1 is before the window.
    assert_eq!(number(r#"run().rate_in_turns("a", "write", 1, 2, 4)"#), Ok(5.5));
    assert_eq!(number(r#"run().rate_in_turns("a", "write", 6, 1, 3)"#), Ok(7.5));
    for (text, said) in [
        (r#"run().rate_in_turns("a", "write", 0, 3, 2)"#, "3 of every 2 seconds, which are no turns"),
        (r#"run().rate_in_turns("a", "write", 0, 0, 2)"#, "0 of every 2 seconds, which are no turns"),
        (r#"run().rate_in_turns("a", "write", 20, 1, 2)"#, "seconds 20 and so on, of which none is measured"),
    ] {
        let error = number(text).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn figures_of_one_run() {
    for (text, expected) in [
        (r#"run("scheduler=noop").rate("a", "read")"#, 1000.0),
        (r#"run("scheduler=cfq").rate("a", "read") / kB"#, 2.0),
        (r#"run("scheduler='cfq' load='random read'").rate("a", "read", 0, 5)"#, 2000.0),
        (r#"run("scheduler=" + x).calls("a", "read")"#, 1.0),
        (r#"run("scheduler=cfq").bytes("a", "read")"#, 16_000.0),
        (r#"run("scheduler=cfq").priority_share(parse_int("4"))"#, 0.75),
        (r#"run("scheduler=cfq").tag_bytes_mean() / MB"#, 3.0),
        (r#"run("scheduler=cfq").far_lines()"#, 5.5),
        (r#"run("scheduler=cfq").consistency_points()"#, 12.0),
        (r#"run("scheduler=cfq").log_waits()"#, 34.0),
        (r#"run("scheduler=cfq").tag_bytes_max() / MB"#, 5.0),
        (r#"last_below(run("scheduler=cfq").rate_by_second("a", "read", 2, 12), 2000)"#, 11.5),
        (r#"least(run("scheduler=cfq").rate_by_second("a", "read", 2, 12), 5)"#, 1200.0),
        (r#"most(run("scheduler=cfq").rate_by_second("a", "read", 2, 12), 5)"#, 2000.0),
        (r#"sum(run("scheduler=cfq").count(sources("a"), "read"))"#, 8.0),
        (r#"sum(most(runs().rate_by_second("a", "read", 0, 10), 1))"#, 3000.0),
        (r#"last_below(run("scheduler=cfq").rate_by_second("a", "read", 2, 9), 2000)"#, 2.5),
        (r#"run("scheduler=cfq").count("a", "all", 1, 3)"#, 2.0),
        (r#"run("scheduler=cfq").latency_mean("a", "read") / ms"#, 10.0),
        (r#"run("scheduler=cfq").latency_mean("b", "write", 0, 3) / ms"#, 2.0),
        (r#"run("scheduler=cfq").ended("b")"#, 4.0),
        (r#"run("scheduler=cfq").cpu_cores()"#, 1.5),
        (r#"run("scheduler=cfq").device_busy() / percent"#, 25.0),
        ("if 2 > 1 { paper * 1.5 } else { 0 }", 207.0),
        ("7", 7.0),
    ] {
        let got = number(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!((got - expected).abs() < 1e-9 * expected.max(1.0), "{text}: {got}, not {expected}");
    }
    let latency = number(r#"run("scheduler=cfq").latency("b", "write", 0.5) / ms"#).unwrap();
    assert!(
        (latency / 6.0 - 1.0).abs() < 0.01,
        "writes of 3 to 10 ms in seconds 2 to 9, half of them up to 6: {latency}"
    );
}

#[test]
fn several_runs_and_sources_are_arrays() {
    for (text, expected) in [
        (r#"mean(runs().rate("a", "read"))"#, 1500.0),
        (r#"sum(run("scheduler=noop").rate(["a", "b"], "all"))"#, 1500.0),
        (r#"max(runs("load='random read'").rate(["a", "b"], "all") / kB)"#, 2.0),
        (r#"min(runs().rate("a", "read") * 2.0)"#, 2000.0),
        (r#"standard_deviation(runs().rate("a", "read"))"#, 500.0),
        (r#"quantile(runs().rate("a", "read"), 0.5)"#, 1000.0),
        (r#"share(runs().rate("a", "read"))[0] * 3.0"#, 1.0),
        (r#"deviation(runs().rate("a", "read"), [1000, 1000])"#, 0.5),
        ("max_where_below([4, 3, 9], [0.5, 0.98, 0.99], 0.99)", 4.0),
        ("max_where_below([4, 3, 9], [0.99, 0.98, 0.99], 0.99)", 3.0),
        ("1.0 + max_where_below([4, 3, 9], [1, 1, 1], 0.99)", 1.0),
    ] {
        let got = number(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!((got - expected).abs() < 1e-9 * expected, "{text}: {got}, not {expected}");
    }
}

#[test]
fn curves_are_points() {
    let points = |text: &str| Expression::new(text).points(&context(false)).unwrap();
    let rate = points(r#"run("scheduler=cfq").rate_by_second("a", "read", 8, 12) / kB"#);
    assert_eq!(rate, [(8.5, 2.0), (9.5, 2.0), (10.5, 0.0), (11.5, 0.0)]);
    let latencies = points(r#"run("scheduler=cfq").latencies("b", "write") / percent"#);
    assert_eq!(latencies.len(), 200);
    assert!(latencies.windows(2).all(|pair| pair[0].0 <= pair[1].0), "a distribution rises");
    assert_eq!(latencies[199].1, 100.0);
    assert_eq!(points("[3, 4.5]"), [(0.0, 3.0), (1.0, 4.5)]);
}

#[test]
fn what_is_wrong_is_said_in_words() {
    for (text, expected) in [
        (r#"run("scheduler=bfq").rate("a", "read")"#, "scheduler=bfq, which is not among noop, cfq"),
        (r#"run("sched=cfq").rate("a", "read")"#, "where no variant has a \"sched\"; there are scheduler, load"),
        (r#"run("cfq")"#, "run(\"cfq\"), which is not like run(\"axis=value\")"),
        (r#"run().rate("a", "read")"#, "run(\"\"), which are 2 variants; runs(...) takes several"),
        (r#"run("scheduler=cfq").rate("c", "read")"#, "\"c\", which is no process or tenant; there are a, b"),
        (r#"run("scheduler=cfq").rate("a", "reed")"#, "\"reed\", which is no kind of call; there are read, write,"),
        (r#"run("scheduler=cfq").rate("a")"#, "rate with other arguments than rate(source, kind) or rate("),
        (r#"run("scheduler=cfq").rat("a", "read")"#, "which does not exist; functions are run, runs, sources, rate,"),
        (r#"run("scheduler=cfq").rate("a", "read", 5, 5)"#, "from 5 to 5, which is no time"),
        (r#"run("scheduler=cfq").latency("a", "read", 99)"#, "the part 99 of the calls, which is not from 0 to 1"),
        (r#"run("scheduler=cfq")"#, "a run without a figure of it"),
        (r#"run("scheduler=cfq").latency("a", "write", 0.5)"#, "no write of \"a\" that returned from 2 s to 10 s"),
        (r#"run("scheduler=cfq").ended("a")"#, "\"a\", which had not ended"),
        ("speed", "speed, which is not defined; constants are kB, MB,"),
        ("\"fast\"", "a text instead of a number"),
        ("1 +", "Script is incomplete"),
        ("let a = 1; a", "Unexpected 'let'"),
        ("mean([])", "mean of no numbers"),
        (r#"run("scheduler=cfq").priority_share(8)"#, "priority 8, which is not from 0 to 7"),
        (
            r#"last_below(run("scheduler=cfq").rate("a", "read"), 1)"#,
            "last_below with other arguments than last_below(curve, y)",
        ),
    ] {
        let error = number(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_rehearsal_knows_names_and_no_figures() {
    let rehearse = |text: &str| Expression::new(text).number(&context(true));
    assert_eq!(rehearse(r#"run("scheduler=cfq").latency("a", "fsync", 0.99)"#), Ok(1.0));
    assert_eq!(rehearse(r#"run("scheduler=cfq").ended("a")"#), Ok(1.0));
    assert!(rehearse(r#"run("scheduler=cfq").latency("c", "fsync", 0.99)"#).is_err());
    assert!(rehearse(r#"run("scheduler=bfq").ended("a")"#).is_err());
}

#[test]
fn what_asks_for_a_variant_that_was_not_run_is_not_run_either() {
    let absent = RunOf { outcome: Outcome::NotRun("too busy".into()), ..(*run("cfq", 1, false)).clone() };
    let context = Context { runs: Rc::new(vec![run("noop", 1, false), Rc::new(absent)]), ..Context::default() };
    let number = |text: &str| Expression::new(text).number(&context);
    assert_eq!(number(r#"run("scheduler=noop").rate("a", "read")"#), Ok(1000.0));
    for text in [
        r#"run("scheduler=cfq").rate("a", "read")"#,
        r#"sum(runs().latency_mean("a", "read"))"#,
        r#"run("scheduler=cfq").ended("b")"#,
        r#"run("scheduler=cfq").cpu_cores()"#,
    ] {
        assert_eq!(number(text), Err(format!("{NOT_RUN}scheduler=cfq load=random read: too busy")), "{text}");
    }
}
