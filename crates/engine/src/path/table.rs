//! The requests under way, and the pieces that they are cut into.

use super::ground::Ground;
use super::request::{Piece, Request};
use crate::block_tags::{BlockTag, tag_piece};
use crate::seat::VolumeSeat;
use crate::slab::Slab;
use plimsoll_core::{AccountId, Operation};
use rustix::io::Errno;

/// Requests and their pieces, by number. Nothing is allocated once it has grown to the largest number of requests under
/// way.
pub(crate) struct Table {
    pub(crate) requests: Slab<Request>,
    pub(crate) pieces: Slab<Piece>,
    /// How many pieces there were: the next one's place in the order of arrival.
    pub(crate) pieces_so_far: u64,
}

impl Table {
    pub(crate) fn with_capacity(expected: usize) -> Table {
        Table { requests: Slab::with_capacity(expected), pieces: Slab::with_capacity(expected), pieces_so_far: 0 }
    }

    /// The request that a piece is of.
    #[inline]
    pub(crate) fn request_of(&self, piece: u32) -> &Request {
        &self.requests[self.pieces[piece].request]
    }

    /// A piece and its request.
    #[inline]
    pub(crate) fn piece(&mut self, index: u32) -> (&mut Piece, &mut Request) {
        let piece = &mut self.pieces[index];
        let request = &mut self.requests[piece.request];
        (piece, request)
    }

    /// Cuts the next piece off a request, unless all is cut or enough is under way. Tags say how long it is.
    #[inline]
    pub(crate) fn cut(&mut self, ground: &Ground, seat: &mut VolumeSeat, index: u32) -> Option<u32> {
        let request = &mut self.requests[index];
        let (start, length_max) = request.uncut()?;
        let VolumeSeat { tags, unflushed, .. } = seat;
        let has_tags = matches!(request.asked.operation, Operation::Read | Operation::Write);
        let (tag, length) = match tags.as_deref().filter(|_| has_tags) {
            Some(tags) => tag_piece(
                tags,
                &ground.tree,
                request.asked.operation,
                request.asked.offset + u64::from(start),
                length_max,
            ),
            None if request.asked.operation == Operation::Flush => (BlockTag::of_flush(unflushed), length_max),
            None => (BlockTag::default(), length_max),
        };
        request.cut(length);
        let piece = Piece::new((index, request), start, length, tag, self.pieces_so_far);
        self.pieces_so_far += 1;
        if start == 0 {
            request.metered = piece.session;
        }
        Some(self.pieces.insert(piece))
    }

    /// The device has done a piece, or need not: the books hear of it.
    #[inline]
    pub(crate) fn device_done(&mut self, ground: &mut Ground, seat: &mut VolumeSeat, index: u32) {
        let (piece, request) = self.piece(index);
        piece.service = Some(ground.now.since(piece.dispatched));
        if let Some(tap) = &mut ground.tap
            && piece.recording == Some(tap.number)
        {
            tap.completed(ground.now, piece.sequence);
        }
        if request.asked.operation == Operation::Write {
            seat.unflushed.union_with(&piece.tag.causes);
        }
    }

    /// One piece of a request less is under way. A request of which a piece has failed is cut no more.
    #[inline]
    pub(crate) fn piece_ended(&mut self, request: u32, error: Option<Errno>) {
        let request = &mut self.requests[request];
        request.pieces -= 1;
        if let Some(errno) = error {
            request.error.get_or_insert(errno);
            request.cut_no_more();
        }
    }

    /// Pieces and requests under way that an account has caused or counts as its own. O(requests under way).
    pub(crate) fn of_account(&self, account: AccountId) -> (usize, usize) {
        let names = |piece: &Piece| piece.session == account || piece.tag.causes.contains(account);
        let pieces = self.pieces.iter().filter(|(_, piece)| names(piece)).count();
        let requests = self.requests.iter().filter(|(_, request)| request.metered == account).count();
        (pieces, requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::samples::{front_end_request, ground, memory_seat};
    use plimsoll_core::CauseSet;

    /// Planted breaks: a piece of a read counts as written; a flush leaves its causes to the next one.
    #[test]
    fn a_flush_is_caused_by_what_was_written_since_the_last_one() {
        let ((mut ground, session), mut seat, mut table) = (ground(), memory_seat(), Table::with_capacity(0));
        for operation in [Operation::Read, Operation::Write] {
            let request = front_end_request(&mut table, session, operation, 0, 4096);
            let piece = table.cut(&ground, &mut seat, request).unwrap();
            assert_eq!(table.cut(&ground, &mut seat, request), None);
            table.pieces[piece].tag.causes = CauseSet::from_iter([session]);
            table.device_done(&mut ground, &mut seat, piece);
            assert_eq!(seat.unflushed.contains(session), operation == Operation::Write);
        }
        for is_first in [true, false] {
            let flush = front_end_request(&mut table, session, Operation::Flush, 0, 0);
            let piece = table.cut(&ground, &mut seat, flush).unwrap();
            assert_eq!(table.pieces[piece].tag.causes.contains(session), is_first);
        }
    }

    /// Planted break: a request goes on being cut after a piece of it has failed.
    #[test]
    fn a_request_of_which_a_piece_has_failed_is_cut_no_more_and_has_the_first_error() {
        let ((mut ground, session), mut seat, mut table) = (ground(), memory_seat(), Table::with_capacity(0));
        let trim = front_end_request(&mut table, session, Operation::Trim, 0, 256 << 20);
        let pieces: Vec<u32> = std::iter::from_fn(|| table.cut(&ground, &mut seat, trim)).collect();
        assert_eq!((pieces.len(), table.of_account(session)), (4, (4, 1)));
        ground.now += plimsoll_core::Span::from_millis(1);
        table.device_done(&mut ground, &mut seat, pieces[0]);
        assert_eq!(table.pieces[pieces[0]].service, Some(plimsoll_core::Span::from_millis(1)));
        table.piece_ended(trim, None);
        assert!(table.cut(&ground, &mut seat, trim).is_some());
        table.piece_ended(trim, Some(Errno::IO));
        table.piece_ended(trim, Some(Errno::NOSPC));
        assert_eq!((table.cut(&ground, &mut seat, trim), table.requests[trim].error), (None, Some(Errno::IO)));
    }
}
