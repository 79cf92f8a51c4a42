use super::*;
use plimsoll_core::{Deadlines, Span};
use proptest::prelude::*;

fn refusal(text: &str) -> String {
    text.parse::<Metadata>().unwrap_err().to_string()
}

fn wish(text: &str) -> ContainerWish {
    match text.parse() {
        Ok(Metadata::Container(wish)) => wish,
        other => panic!("{text:?}: {other:?}"),
    }
}

/// Promise: tenants-metadata.
#[test]
fn everything_can_be_asked_for() {
    let all = "pool=web/batch, name=backup,reserve=5%,limit=10MB/s,weight=50,priority=idle,\
               read_deadline=10ms,write_deadline=1s,fsync_deadline=200ms";
    let expected = ContainerWish {
        pool: Some("web/batch".to_owned()),
        name: Some("backup".to_owned()),
        allocation: Allocation {
            reserve: Rate::DevicePercent(5.0),
            limit: Some(Rate::BytesPerSecond(10e6)),
            weight: 50,
            priority: Priority::Idle,
            deadlines: Deadlines {
                read: Some(Span::from_millis(10)),
                write: Some(Span::from_secs(1)),
                fsync: Some(Span::from_millis(200)),
            },
        },
    };
    assert_eq!(wish(all), expected);
    assert_eq!(wish("priority=3").allocation.priority, Priority::Level(3));
    assert_eq!((wish(""), wish(" ")), (ContainerWish::default(), ContainerWish::default()));
    assert_eq!(of_joined(61).parse(), Ok(Metadata::Joined(61)));
}

/// Promise: tenants-metadata.
#[test]
fn what_is_not_understood_is_refused_in_one_line_that_says_what_is_allowed() {
    assert_eq!(refusal("backup"), "listenerMetadata has \"backup\", allowed is KEY=VALUE with commas between");
    assert_eq!(refusal("name=a,"), "listenerMetadata has \"\", allowed is KEY=VALUE with commas between");
    assert_eq!(refusal("bit=x"), format!("listenerMetadata has the key \"bit\", allowed are {KEYS}"));
    assert_eq!(refusal("bit=1,name=a"), format!("listenerMetadata has the key \"bit\", allowed are {KEYS}"));
    assert_eq!(refusal("weight=1,weight=2"), "listenerMetadata has the key \"weight\" twice");
    assert_eq!(refusal("weight=-1"), "listenerMetadata has weight=\"-1\", allowed is 1 to 10000");
    assert_eq!(refusal("priority=8"), "listenerMetadata has priority=\"8\", allowed is 0 to 7 or idle");
    assert_eq!(refusal("limit=0 MB/s"), "listenerMetadata has limit=\"0 MB/s\", allowed is a rate above zero");
    assert!(refusal("limit=fast").starts_with("listenerMetadata has limit=\"fast\", allowed is a rate such as"));
    for deadline in ["0ms", "61 min", "9999999h"] {
        let allowed = "allowed is a time above zero and up to 1 h, such as \"20ms\"";
        assert!(refusal(&format!("fsync_deadline={deadline}")).ends_with(allowed), "{deadline}");
    }
    assert!(refusal("name=a/b").contains("name=\"a/b\", allowed is 1 to 128 of the letters"));
    assert!(refusal("name=").contains("name=\"\", allowed is 1 to 128"));
    assert_eq!(refusal("pool="), "listenerMetadata has pool=\"\", allowed is the path of a pool");
    assert!(!refusal("name=a\nb").contains('\n'));
    assert_eq!(refusal(&"x".repeat(1025)), "listenerMetadata has 1025 bytes, allowed are 1024");
}

#[test]
fn a_session_is_called_as_asked_for_or_as_its_container() {
    assert_eq!(wish("name=backup").session_name("0a1b"), "backup");
    assert_eq!(wish("").session_name("web_1.service-0a"), "web_1.service-0a");
    assert_eq!(wish("").session_name("a/b\nc"), "a-b-c");
    assert_eq!(wish("").session_name(""), "container");
    assert_eq!(wish("").session_name(&"ä".repeat(2000)).len(), 128);
}

proptest! {
    /// Promise: tenants-metadata.
    #[test]
    fn any_text_is_understood_or_refused_in_one_bounded_line(
        text in "((pool|name|reserve|limit|weight|priority|bit|fsync_deadline|[a-z]{0,3})=?[0-9a-zA-Z%/ .\n-]{0,6},?){0,8}|\\PC{0,40}",
    ) {
        match text.parse::<Metadata>() {
            Ok(Metadata::Joined(bit)) => prop_assert_eq!(of_joined(bit).parse(), Ok(Metadata::Joined(bit))),
            Ok(Metadata::Container(wish)) => prop_assert!(wish.name.is_none_or(|name| is_name(&name))),
            Err(error) => {
                let line = error.to_string();
                prop_assert!(line.len() < 16 * METADATA_BYTES_MAX && !line.contains('\n'), "{}", line);
            }
        }
    }
}
