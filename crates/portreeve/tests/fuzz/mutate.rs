//! Random alterations, the same for the same seed.

/// How many alterations one input gets at most.
const MOST: usize = 6;
/// What often stands at the edge of something.
const EDGES: [u8; 12] = [0, 1, 2, 0x0a, 0x0d, 0x16, 0x20, 0x3a, 0x7f, 0x80, 0xfe, 0xff];
/// Inputs do not grow beyond this.
const MAX_LEN: usize = 80_000;

/// Makes inputs out of others.
pub(crate) struct Mutator(u64);

impl Mutator {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One of the inputs, altered.
    pub(crate) fn next(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(MOST) {
            self.alter(&mut bytes, inputs);
        }
        bytes.truncate(MAX_LEN);
        bytes
    }

    fn alter(&mut self, bytes: &mut Vec<u8>, inputs: &[Vec<u8>]) {
        let (from, to) = (self.below(bytes.len() + 1), self.below(bytes.len() + 1));
        let (from, to) = (from.min(to), from.max(to));
        match self.below(8) {
            0 => bytes.truncate(to),
            1 => drop(bytes.drain(from..to)),
            2 => {
                let copy = bytes[from..to].to_vec();
                bytes.splice(from..from, copy);
            }
            3 => {
                let other = &inputs[self.below(inputs.len())];
                let start = self.below(other.len() + 1);
                bytes.splice(from.., other[start..].iter().copied());
            }
            4 => {
                let edge = EDGES[self.below(EDGES.len())];
                bytes.insert(from, edge);
            }
            _ if from == bytes.len() => {}
            5 => bytes[from] = EDGES[self.below(EDGES.len())],
            6 => bytes[from] ^= 1 << self.below(8),
            _ => bytes[from] = self.random().to_le_bytes()[0],
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random() % limit.max(1) as u64).unwrap()
    }

    /// `SplitMix64`.
    fn random(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
