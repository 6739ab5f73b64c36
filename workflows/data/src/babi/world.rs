//! A world of people who walk between rooms and carry things. It writes each event as a sentence, and remembers the facts.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

pub const PEOPLE: [&str; 4] = ["Mary", "Sandra", "John", "Daniel"];
pub const ROOMS: [&str; 6] = ["kitchen", "bathroom", "bedroom", "garden", "hallway", "office"];
pub const THINGS: [&str; 3] = ["football", "apple", "milk"];
const WALKS: [&str; 4] = ["went to", "moved to", "journeyed to", "travelled to"];
const GRABS: [&str; 4] = ["got", "took", "picked up", "grabbed"];
const DROPS: [&str; 3] = ["dropped", "discarded", "put down"];

/// A random element of a list.
pub fn pick<T: Copy>(rng: &mut ChaCha8Rng, list: &[T]) -> T {
    list[rng.random_range(0..list.len())]
}

/// `count` different numbers below `below`, in random order.
pub fn choose(rng: &mut ChaCha8Rng, count: usize, below: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..below).collect();
    for at in 0..count.min(below) {
        let other = rng.random_range(at..below);
        all.swap(at, other);
    }
    all.truncate(count);
    all
}

/// Where people are, and what they carry.
#[derive(Default)]
pub struct World {
    /// The sentences so far.
    pub lines: Vec<String>,
    /// The room of each person who has walked.
    pub room: [Option<usize>; 4],
    /// What each person carries, in the order of taking.
    pub carried: [Vec<usize>; 4],
    /// The rooms that each thing has been in since somebody first took it.
    pub track: [Vec<usize>; 3],
}

impl World {
    /// Writes a sentence about rooms: `{who} {walked} the {room}.`
    pub fn walk(&mut self, people: &[usize], who: &str, rng: &mut ChaCha8Rng) {
        let room = loop {
            let room = rng.random_range(0..ROOMS.len());
            if people.iter().all(|person| self.room[*person] != Some(room)) {
                break room;
            }
        };
        self.lines.push(format!("{who} {} the {}.", pick(rng, &WALKS), ROOMS[room]));
        for person in people {
            self.room[*person] = Some(room);
            for thing in &self.carried[*person] {
                self.track[*thing].push(room);
            }
        }
    }

    /// A person takes a thing that lies in the same room, or that has not been seen yet. Returns whether such a thing exists.
    pub fn grab(&mut self, person: usize, rng: &mut ChaCha8Rng) -> bool {
        let Some(room) = self.room[person] else { return false };
        let held = |thing: usize| self.carried.iter().any(|things| things.contains(&thing));
        let here = |thing: &usize| self.track[*thing].last().is_none_or(|place| *place == room) && !held(*thing);
        let free: Vec<usize> = (0..THINGS.len()).filter(here).collect();
        if free.is_empty() {
            return false;
        }
        let thing = pick(rng, &free);
        self.lines.push(format!("{} {} the {}.", PEOPLE[person], pick(rng, &GRABS), THINGS[thing]));
        self.carried[person].push(thing);
        if self.track[thing].last() != Some(&room) {
            self.track[thing].push(room);
        }
        true
    }

    /// A person drops the thing that they took last. Returns whether they carried one.
    pub fn drop(&mut self, person: usize, rng: &mut ChaCha8Rng) -> bool {
        let Some(thing) = self.carried[person].pop() else { return false };
        self.lines.push(format!("{} {} the {}.", PEOPLE[person], pick(rng, &DROPS), THINGS[thing]));
        true
    }

    /// A random event, with things or without.
    pub fn add_random_event(&mut self, things: bool, rng: &mut ChaCha8Rng) {
        let person = rng.random_range(0..PEOPLE.len());
        let done = things
            && match rng.random_range(0..4) {
                0 | 1 => self.grab(person, rng),
                2 => self.drop(person, rng),
                _ => false,
            };
        if !done {
            self.walk(&[person], PEOPLE[person], rng);
        }
    }

    /// A person whose room is known; there must be one.
    pub fn somebody(&self, rng: &mut ChaCha8Rng) -> usize {
        let known: Vec<usize> = (0..PEOPLE.len()).filter(|person| self.room[*person].is_some()).collect();
        pick(rng, &known)
    }
}
