//! Moves an object of 1 KiB between two nodes 2,000 times and nothing else, for counting instructions:
//! `valgrind --tool=callgrind target/release/examples/relocations`. Their number repeats where times do not.

use rehome_benches::Pair;

fn main() {
    let mut pair = Pair::new(1024);
    for _ in 0..2000 {
        pair.relocate();
    }
    println!("{} events", pair.events);
}
