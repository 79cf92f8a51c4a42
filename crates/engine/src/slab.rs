//! A table that uses its free places again: requests, pieces, volumes, front ends.

/// Values by small numbers. Insert, remove and look up are O(1); memory grows by doubling and is kept.
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn with_capacity(capacity: usize) -> Slab<T> {
        Slab { places: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity) }
    }

    /// Puts `value` into the place that was freed last, and says which.
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.places[index as usize] = Some(value);
                index
            }
            None => {
                self.places.push(Some(value));
                (self.places.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.places.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(value)
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.places.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.places.get_mut(index as usize)?.as_mut()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// How many places there are, free ones too.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.places.iter().enumerate().filter_map(|(index, place)| Some((index as u32, place.as_ref()?)))
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("an index lives as long as what it names")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut T {
        self.get_mut(index).expect("an index lives as long as what it names")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::with_capacity(0);
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.insert('c'), a);
        assert_eq!(slab.iter().collect::<Vec<_>>(), [(a, &'c'), (b, &'b')]);
        assert_eq!((slab.len(), slab.places()), (2, 2));
        slab[b] = 'd';
        assert_eq!(slab.get(b), Some(&'d'));
    }
}
