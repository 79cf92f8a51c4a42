//! Front ends that clients connect to: served through their doors, as the daemon does it.

use crate::front::Site;
use plimsoll_serve::connection::{Address, Listener, ListenerOptions, Serving};
use plimsoll_serve::doors::DoorPlan;
use plimsoll_serve::registry::front_end;
use plimsoll_testkit::{PATIENCE, session};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A listener with the site's volume behind one door.
pub struct Served {
    serving: Serving,
}

impl Served {
    /// Serves the volume as `door` over the front end called `name`.
    pub fn new(site: &Site, name: &str, door: &str) -> Served {
        let doors = (front_end(name).unwrap().sockets().unwrap().doors)();
        let volume = site.volume.clone();
        doors.add(DoorPlan { name: door.into(), volume, is_rotational: false, login: None }).unwrap();
        let address = "tcp:127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(&address, ListenerOptions::default()).unwrap();
        let (engine, volume) = (site.engine.clone(), site.volume.name.clone());
        let arrived = move |arrival: plimsoll_serve::doors::Arrival| {
            engine.attach(&volume, session("client"), arrival.front_end).unwrap();
        };
        Served { serving: doors.serve(listener, Box::new(arrived)).unwrap() }
    }

    pub fn address(&self) -> &Address {
        self.serving.address()
    }

    /// A connection of which nothing was said.
    pub fn connect(&self) -> TcpStream {
        let Address::Tcp(address) = self.address() else { panic!("it listens on TCP") };
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE.into())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Says all of it, and takes what comes until the server closes.
    pub fn say(&self, messages: &[Vec<u8>]) {
        let mut stream = self.connect();
        // The server may close before it has everything.
        let _ = stream.write_all(&messages.concat());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut bytes = [0; 64 << 10];
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it never closed: {error}");
                    return;
                }
            }
        }
    }
}
