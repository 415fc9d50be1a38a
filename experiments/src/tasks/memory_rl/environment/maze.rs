//! Mazes on a square grid.

use std::collections::VecDeque;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{EAST, NORTH, SOUTH, WEST};

/// A square of cells that are free or walls. Its border is of walls, and each free cell can be reached from each other.
///
/// Rooms lie at odd rows and columns; between two neighbours there is a cell that is a way or a wall. Cells are numbered row by row.
#[derive(Clone, Debug)]
pub(super) struct Maze {
    side: usize,
    free: Vec<bool>,
}

impl Maze {
    /// Draws a maze of `rooms * rooms` rooms: a random walk that goes back where it is stuck joins all rooms by one way each, then every wall that is left
    /// between two rooms is opened with probability `openings`.
    pub(super) fn drawn(rooms: usize, openings: f64, rng: &mut ChaCha8Rng) -> Self {
        let side = 2 * rooms + 1;
        let mut maze = Self { side, free: vec![false; side * side] };
        let start = maze.cell(2 * rng.random_range(0..rooms) + 1, 2 * rng.random_range(0..rooms) + 1);
        maze.free[start] = true;
        let mut way = vec![start];
        while let Some(&room) = way.last() {
            let closed: Vec<(usize, usize)> = [NORTH, EAST, SOUTH, WEST]
                .into_iter()
                .filter_map(|action| maze.neighbour(room, action))
                .filter(|&(_, next)| !maze.free[next])
                .collect();
            if closed.is_empty() {
                way.pop();
                continue;
            }
            let (wall, next) = closed[rng.random_range(0..closed.len())];
            (maze.free[wall], maze.free[next]) = (true, true);
            way.push(next);
        }
        for row in 1..side - 1 {
            for column in 1..side - 1 {
                let between = row % 2 != column % 2;
                let cell = maze.cell(row, column);
                if between && !maze.free[cell] {
                    maze.free[cell] = rng.random_bool(openings);
                }
            }
        }
        maze
    }

    fn cell(&self, row: usize, column: usize) -> usize {
        row * self.side + column
    }

    /// The cell between a room and the next one, and that room.
    fn neighbour(&self, room: usize, action: usize) -> Option<(usize, usize)> {
        let (row, column) = (room / self.side, room % self.side);
        let last = self.side - 2;
        match action {
            NORTH if row > 1 => Some((self.cell(row - 1, column), self.cell(row - 2, column))),
            EAST if column < last => Some((self.cell(row, column + 1), self.cell(row, column + 2))),
            SOUTH if row < last => Some((self.cell(row + 1, column), self.cell(row + 2, column))),
            WEST if column > 1 => Some((self.cell(row, column - 1), self.cell(row, column - 2))),
            _ => None,
        }
    }

    /// The free cells, in order.
    pub(super) fn cells(&self) -> Vec<usize> {
        (0..self.free.len()).filter(|&cell| self.free[cell]).collect()
    }

    /// Where a step from a free cell leads: to its neighbour, or nowhere if that is a wall.
    pub(super) fn after(&self, cell: usize, action: usize) -> usize {
        let next = match action {
            NORTH => cell - self.side,
            EAST => cell + 1,
            SOUTH => cell + self.side,
            _ => cell - 1,
        };
        if self.free[next] { next } else { cell }
    }

    /// The cells of the square around `center`, row by row, `None` for walls and what is outside.
    pub(super) fn around(&self, center: usize, radius: usize) -> impl Iterator<Item = Option<usize>> {
        let (row, column) = (center / self.side, center % self.side);
        let within = move |position: usize, offset: usize| (position + offset).checked_sub(radius).filter(|&at| at < self.side);
        let offsets = (0..=2 * radius).flat_map(move |down| (0..=2 * radius).map(move |right| (down, right)));
        offsets.map(move |(down, right)| {
            let cell = self.cell(within(row, down)?, within(column, right)?);
            self.free[cell].then_some(cell)
        })
    }

    /// Steps from each cell to `goal`; `None` for walls.
    pub(super) fn distances(&self, goal: usize) -> Vec<Option<usize>> {
        let mut distances = vec![None; self.free.len()];
        distances[goal] = Some(0);
        let mut reached = VecDeque::from([(goal, 0)]);
        while let Some((cell, distance)) = reached.pop_front() {
            for action in [NORTH, EAST, SOUTH, WEST] {
                let next = self.after(cell, action);
                if distances[next].is_none() {
                    distances[next] = Some(distance + 1);
                    reached.push_back((next, distance + 1));
                }
            }
        }
        distances
    }
}

#[cfg(test)]
impl Maze {
    /// The maze of a picture in which `#` is a wall.
    pub(super) fn pictured(rows: &[&str]) -> Self {
        Self { side: rows.len(), free: rows.iter().flat_map(|row| row.chars().map(|cell| cell != '#')).collect() }
    }
}

#[cfg(test)]
mod tests {
    use heedful_random::RandomKey;

    use super::*;

    const PICTURE: [&str; 5] = ["#####", "#   #", "# ###", "#   #", "#####"];

    #[test]
    fn every_free_cell_of_a_drawn_maze_can_be_reached_and_the_border_is_closed() {
        for (seed, rooms, openings) in [(1, 2, 0.0), (2, 3, 0.3), (3, 5, 0.0), (4, 16, 0.5), (5, 4, 1.0)] {
            let maze = Maze::drawn(rooms, openings, &mut RandomKey::from_seed(seed).rng());
            let side = 2 * rooms + 1;
            let cells = maze.cells();
            assert!(cells.iter().all(|cell| (1..side - 1).contains(&(cell / side)) && (1..side - 1).contains(&(cell % side))));
            let distances = maze.distances(cells[0]);
            assert!((0..side * side).all(|cell| distances[cell].is_some() == cells.contains(&cell)));
            let ways = rooms * rooms - 1;
            match openings {
                0.0 => assert_eq!(cells.len(), rooms * rooms + ways),
                1.0 => assert_eq!(cells.len(), rooms * rooms + 2 * rooms * (rooms - 1)),
                _ => assert!((rooms * rooms + ways + 1..rooms * rooms + 2 * rooms * (rooms - 1)).contains(&cells.len())),
            }
        }
    }

    #[test]
    fn a_step_leads_to_the_neighbour_and_a_wall_stops_it() {
        let maze = Maze::pictured(&PICTURE);
        assert_eq!([NORTH, EAST, SOUTH, WEST].map(|action| maze.after(6, action)), [6, 7, 11, 6]);
        assert_eq!([NORTH, EAST, SOUTH, WEST].map(|action| maze.after(11, action)), [6, 11, 16, 11]);
    }

    #[test]
    fn distances_are_those_of_the_shortest_ways() {
        let maze = Maze::pictured(&PICTURE);
        let distances = maze.distances(8);
        assert_eq!([8, 7, 6, 11, 16, 17, 18].map(|cell| distances[cell]), [0, 1, 2, 3, 4, 5, 6].map(Some));
        assert_eq!((distances[0], distances[12]), (None, None));
    }

    #[test]
    fn what_is_around_a_cell_has_walls_outside_too() {
        let maze = Maze::pictured(&PICTURE);
        let around: Vec<_> = maze.around(6, 1).collect();
        assert_eq!(around, [None, None, None, None, Some(6), Some(7), None, Some(11), None]);
        assert_eq!(maze.around(18, 3).flatten().collect::<Vec<_>>(), [6, 7, 8, 11, 16, 17, 18]);
        assert_eq!(maze.around(18, 3).count(), 49);
    }
}
