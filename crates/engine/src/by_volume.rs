//! What stands before some volumes, by the volume's number.

/// Values of volumes: at most one for each. Look up is O(1).
pub(crate) struct ByVolume<T>(Vec<Option<Box<T>>>);

impl<T> Default for ByVolume<T> {
    fn default() -> Self {
        ByVolume(Vec::new())
    }
}

impl<T> ByVolume<T> {
    #[inline]
    pub(crate) fn get(&self, volume: u32) -> Option<&T> {
        self.0.get(volume as usize)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, volume: u32) -> Option<&mut T> {
        self.0.get_mut(volume as usize)?.as_deref_mut()
    }

    /// Puts `value` in the place of what the volume had.
    pub(crate) fn set(&mut self, volume: u32, value: Option<Box<T>>) {
        if value.is_some() && self.0.len() <= volume as usize {
            self.0.resize_with(volume as usize + 1, || None);
        }
        if let Some(place) = self.0.get_mut(volume as usize) {
            *place = value;
        }
    }

    /// Takes what the volume has.
    pub(crate) fn take(&mut self, volume: u32) -> Option<Box<T>> {
        self.0.get_mut(volume as usize)?.take()
    }

    /// Volumes with a value, by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.0).filter_map(|(volume, value)| Some((volume, value.as_deref()?)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..).zip(&mut self.0).filter_map(|(volume, value)| Some((volume, value.as_deref_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_what_was_put_there_last() {
        let mut values = ByVolume::default();
        values.set(3, None);
        assert_eq!(values.get(3), None);
        assert_eq!(values.take(3), None);
        for (volume, value) in [(2, 'a'), (0, 'b'), (2, 'c')] {
            values.set(volume, Some(Box::new(value)));
        }
        assert_eq!(values.iter().collect::<Vec<_>>(), [(0, &'b'), (2, &'c')]);
        values.iter_mut().for_each(|(_, value)| value.make_ascii_uppercase());
        assert_eq!([0, 1, 2].map(|volume| values.get(volume).copied()), [Some('B'), None, Some('C')]);
        assert_eq!(values.get_mut(2), Some(&mut 'C'));
        assert_eq!(values.take(2), Some(Box::new('C')));
        values.set(0, None);
        assert_eq!(values.iter().count(), 0);
    }
}
