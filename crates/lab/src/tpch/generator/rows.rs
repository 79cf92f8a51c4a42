//! Rows, column by column (TPC-H, clause 4.2.3).

use super::super::Table;
use super::super::words::*;
use super::Generator;
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::fmt::{self, Display, Write};

/// 1992-01-01, the first day of the data, as a Julian day, which PostgreSQL reads as a date: `J2448623`.
const FIRST_DAY: u64 = 2_448_623;
/// Days of orders: up to 151 days before the end of 1998.
const ORDER_DAYS: u64 = 2406;
/// The day that is today in the data, 1995-06-17, since the first one.
const TODAY: u64 = 1263;
/// Of 32 keys of orders 8 are used (clause 4.2.3).
const ORDER_KEYS_USED: u64 = 8;
const ORDER_KEYS: u64 = 32;
const LINES_MAX: u64 = 7;
/// Suppliers of a part.
const SUPPLIERS_OF_PART: u64 = 4;
/// Clerks at scale 1 are 1000, a hundred and fiftieth of its customers.
const CUSTOMERS_PER_CLERK: u64 = 150;
/// Of three customers one orders nothing.
const CUSTOMERS_PER_IDLE: u64 = 3;

/// An amount in cents, written with two decimals.
struct Money(i64);

impl Display for Money {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(out, "{sign}{}.{:02}", self.0.unsigned_abs() / 100, self.0.unsigned_abs() % 100)
    }
}

/// A day since the first one.
struct Day(u64);

impl Display for Day {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "J{}", FIRST_DAY + self.0)
    }
}

/// A line of an order.
struct Line {
    part: u64,
    supplier: u64,
    quantity: u64,
    price: i64,
    discount_percent: u64,
    tax_percent: u64,
    shipped: u64,
    committed: u64,
    received: u64,
    random: Pcg64Mcg,
}

/// An order and its lines, without what only the row of the order has.
struct Order {
    key: u64,
    day: u64,
    lines: Vec<Line>,
    random: Pcg64Mcg,
}

/// From `least` to `most`, both included.
fn between(random: &mut Pcg64Mcg, least: u64, most: u64) -> u64 {
    least + random.next_u64() % (most - least + 1)
}

fn one_of<'w>(random: &mut Pcg64Mcg, words: &[&'w str]) -> &'w str {
    words[between(random, 0, words.len() as u64 - 1) as usize]
}

/// Words, cut at a random length.
fn text(random: &mut Pcg64Mcg, least: u64, most: u64) -> String {
    let length = between(random, least, most) as usize;
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        text.push_str(one_of(random, &WORDS));
        text.push(' ');
    }
    text.truncate(length);
    text
}

fn phone(random: &mut Pcg64Mcg, nation: u64) -> String {
    let [area, exchange] = [(); 2].map(|()| between(random, 100, 999));
    format!("{}-{area}-{exchange}-{}", nation + 10, between(random, 1000, 9999))
}

fn balance(random: &mut Pcg64Mcg) -> Money {
    Money(between(random, 0, 1_099_998) as i64 - 99_999)
}

/// Of the part with this key, in cents.
fn retail_price(part: u64) -> i64 {
    (90_000 + (part / 10) % 20_001 + 100 * (part % 1000)) as i64
}

/// Steele, Lea and Flood's finalizer (SplitMix64), which makes neighbours unlike.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

impl Generator {
    /// The stream of a row. Lines have their order's.
    fn random(&self, table: Table, number: u64) -> Pcg64Mcg {
        let of_table = mix(self.seed ^ mix(table as u64));
        Pcg64Mcg::new(u128::from(of_table) << 64 | u128::from(mix(of_table ^ number)) | 1)
    }

    /// Appends the row of this number, or all rows of a part or an order; answers with how many.
    pub(super) fn put(&self, table: Table, number: u64, out: &mut String) -> u64 {
        let random = &mut self.random(table, number);
        let key = number + 1;
        let written = match table {
            Table::Region => writeln!(out, "{number}\t{}\t{}", REGIONS[number as usize], text(random, 31, 115)),
            Table::Nation => {
                let (name, region) = NATIONS[number as usize];
                writeln!(out, "{number}\t{name}\t{region}\t{}", text(random, 31, 114))
            }
            Table::Supplier => {
                let (nation, address) = (between(random, 0, 24), text(random, 10, 40));
                let (phone, balance) = (phone(random, nation), balance(random));
                let comment = text(random, 25, 100);
                writeln!(out, "{key}\tSupplier#{key:09}\t{address}\t{nation}\t{phone}\t{balance}\t{comment}")
            }
            Table::Customer => {
                let (nation, address) = (between(random, 0, 24), text(random, 10, 40));
                let (phone, balance) = (phone(random, nation), balance(random));
                let (segment, comment) = (one_of(random, &MARKET_SEGMENTS), text(random, 29, 116));
                writeln!(out, "{key}\tCustomer#{key:09}\t{address}\t{nation}\t{phone}\t{balance}\t{segment}\t{comment}")
            }
            Table::Part => put_part(key, random, out),
            Table::PartSupplier => return self.put_suppliers(key, random, out),
            Table::Orders => self.put_order(number, out),
            Table::LineItem => return self.put_lines(number, out),
        };
        written.expect("a text takes everything");
        1
    }

    /// A supplier of a part: the four of one are a quarter of all suppliers apart.
    fn supplier(&self, part: u64, which: u64) -> u64 {
        let quarter = self.suppliers / SUPPLIERS_OF_PART;
        (part + which * quarter + (part - 1) / self.suppliers) % self.suppliers + 1
    }

    fn put_suppliers(&self, part: u64, random: &mut Pcg64Mcg, out: &mut String) -> u64 {
        for which in 0..SUPPLIERS_OF_PART {
            let supplier = self.supplier(part, which);
            let (available, cost) = (between(random, 1, 9999), Money(between(random, 100, 100_000) as i64));
            let comment = text(random, 49, 198);
            writeln!(out, "{part}\t{supplier}\t{available}\t{cost}\t{comment}").expect("a text takes everything");
        }
        SUPPLIERS_OF_PART
    }

    /// The order of this number, of which both tables tell a part.
    fn order(&self, number: u64) -> Order {
        let mut random = self.random(Table::Orders, number);
        let key = number / ORDER_KEYS_USED * ORDER_KEYS + number % ORDER_KEYS_USED + 1;
        let day = between(&mut random, 0, ORDER_DAYS - 1);
        let count = between(&mut random, 1, LINES_MAX);
        let lines = (0..count).map(|line| self.line(day, self.random(Table::LineItem, number * LINES_MAX + line)));
        Order { key, day, lines: lines.collect(), random }
    }

    fn line(&self, ordered: u64, mut random: Pcg64Mcg) -> Line {
        let draw = &mut random;
        let part = between(draw, 1, self.parts);
        let supplier = self.supplier(part, between(draw, 0, SUPPLIERS_OF_PART - 1));
        let quantity = between(draw, 1, 50);
        let shipped = ordered + between(draw, 1, 121);
        Line {
            part,
            supplier,
            quantity,
            price: quantity as i64 * retail_price(part),
            discount_percent: between(draw, 0, 10),
            tax_percent: between(draw, 0, 8),
            shipped,
            committed: ordered + between(draw, 30, 90),
            received: shipped + between(draw, 1, 30),
            random,
        }
    }

    fn put_order(&self, number: u64, out: &mut String) -> fmt::Result {
        let Order { key, day, lines, mut random } = self.order(number);
        let random = &mut random;
        let buyers = self.customers / CUSTOMERS_PER_IDLE * (CUSTOMERS_PER_IDLE - 1);
        let buyer = between(random, 0, buyers - 1);
        let customer = buyer / (CUSTOMERS_PER_IDLE - 1) * CUSTOMERS_PER_IDLE + buyer % (CUSTOMERS_PER_IDLE - 1) + 1;
        let open = lines.iter().filter(|line| line.shipped > TODAY).count();
        let status = if open == lines.len() { 'O' } else { ['F', 'P'][usize::from(open > 0)] };
        let of_line =
            |line: &Line| line.price * (100 + line.tax_percent as i64) * (100 - line.discount_percent as i64) / 10_000;
        let total = Money(lines.iter().map(of_line).sum());
        let priority = one_of(random, &ORDER_PRIORITIES);
        let clerk = between(random, 1, (self.customers / CUSTOMERS_PER_CLERK).max(1));
        let (day, comment) = (Day(day), text(random, 19, 78));
        writeln!(out, "{key}\t{customer}\t{status}\t{total}\t{day}\t{priority}\tClerk#{clerk:09}\t0\t{comment}")
    }

    fn put_lines(&self, number: u64, out: &mut String) -> u64 {
        let Order { key, lines, .. } = self.order(number);
        let count = lines.len() as u64;
        for (mut line, place) in lines.into_iter().zip(1..) {
            put_line(key, place, &mut line, out).expect("a text takes everything");
        }
        count
    }
}

fn put_part(key: u64, random: &mut Pcg64Mcg, out: &mut String) -> fmt::Result {
    let [first, second, third] = [(); 3].map(|()| one_of(random, &WORDS));
    let maker = between(random, 1, 5);
    let brand = between(random, 1, 5);
    let kind = one_of(random, &TYPE_KINDS);
    let (finish, metal) = (one_of(random, &TYPE_FINISHES), one_of(random, &TYPE_METALS));
    let size = between(random, 1, 50);
    let (container_size, container) = (one_of(random, &CONTAINER_SIZES), one_of(random, &CONTAINERS));
    write!(
        out,
        "{key}\t{first} {second} {third}\tManufacturer#{maker}\tBrand#{maker}{brand}\t{kind} {finish} {metal}\t"
    )?;
    let (price, comment) = (Money(retail_price(key)), text(random, 5, 22));
    writeln!(out, "{size}\t{container_size} {container}\t{price}\t{comment}")
}

fn put_line(order: u64, place: u64, line: &mut Line, out: &mut String) -> fmt::Result {
    let random = &mut line.random;
    let returned = if line.received <= TODAY { one_of(random, &["R", "A"]) } else { "N" };
    let status = if line.shipped > TODAY { 'O' } else { 'F' };
    let (instruction, mode) = (one_of(random, &SHIP_INSTRUCTIONS), one_of(random, &SHIP_MODES));
    let comment = text(random, 10, 43);
    let Line { part, supplier, quantity, price, discount_percent, tax_percent, .. } = line;
    let (price, shipped, committed, received) =
        (Money(*price), Day(line.shipped), Day(line.committed), Day(line.received));
    write!(
        out,
        "{order}\t{part}\t{supplier}\t{place}\t{quantity}\t{price}\t0.{discount_percent:02}\t0.{tax_percent:02}\t"
    )?;
    writeln!(out, "{returned}\t{status}\t{shipped}\t{committed}\t{received}\t{instruction}\t{mode}\t{comment}")
}
