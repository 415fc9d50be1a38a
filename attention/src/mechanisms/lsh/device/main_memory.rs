//! The operator in main memory.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{Shape, TensorData, try_read_sync};

use super::sort_layout::{Form, Rows};
use crate::contract::visibility::{hidden_logit, least_visible_logit};
use crate::mechanisms::lsh::chunks::self_penalty;

fn integers<B: Backend>(x: IntTensor<B>) -> Vec<i32> {
    try_read_sync(B::int_into_data(x)).expect("a device in main memory answers at once").expect("integers can be read").iter().collect()
}

fn numbers<B: Backend>(x: FloatTensor<B>) -> Vec<f32> {
    try_read_sync(B::float_into_data(x)).expect("a device in main memory answers at once").expect("numbers can be read").iter().collect()
}

fn tensor<B: Backend>(numbers: Vec<f32>, shape: Shape, like: &FloatTensor<B>) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(numbers, shape).convert_dtype(like.dtype()), &like.device())
}

/// One plane of an arrangement.
pub(super) struct Plane<'a> {
    form: &'a Form,
    numbers: &'a [i32],
}

impl<'a> Plane<'a> {
    pub(super) fn all(form: &'a Form, numbers: &'a [i32]) -> Vec<Self> {
        numbers.chunks(form.numbers()).map(|numbers| Self { form, numbers }).collect()
    }

    fn chunk(&self, position: usize) -> usize {
        self.numbers[position] as usize
    }

    /// Place of a position in the query order.
    pub(super) fn query_place(&self, position: usize) -> usize {
        self.numbers[2 * self.form.length + position] as usize
    }

    /// Query at a place.
    fn query(&self, place: usize) -> Option<usize> {
        usize::try_from(self.numbers[3 * self.form.length + place]).ok()
    }

    fn chunks(&self) -> usize {
        self.numbers[self.form.numbers() - 1] as usize
    }

    /// Key in a column of a query group.
    pub(super) fn met_key(&self, group: usize, column: usize) -> Option<usize> {
        usize::try_from(self.numbers[self.form.lists()[0] + group * self.form.columns() + column]).ok()
    }

    fn looks_at(&self, query: usize, key: usize) -> bool {
        let (form, from, to, chunks) = (self.form, self.chunk(query), self.chunk(key), self.chunks());
        if form.rules.wraps {
            (from + chunks - to) % chunks <= form.before || (to + chunks - from) % chunks <= form.after
        } else {
            to + form.before >= from && to <= from + form.after
        }
    }
}

/// Chunk `slot` of the chunks that queries meet, if the first query stands in chunk `own`.
fn met(form: &Form, own: usize, slot: usize, chunks: usize) -> Option<usize> {
    if form.meets_all() {
        let is_near = form.rules.wraps || form.rules.has_holes || slot + form.before >= own && slot <= own + form.after;
        (slot < chunks && is_near).then_some(slot)
    } else if form.rules.wraps {
        (slot < chunks).then(|| (own + slot + chunks - form.before % chunks) % chunks)
    } else {
        (own + slot).checked_sub(form.before).filter(|&chunk| chunk < chunks)
    }
}

pub(super) fn arranged<B: Backend>(buckets: IntTensor<B>, live: IntTensor<B>, form: &Form) -> IntTensor<B> {
    let device = buckets.device();
    let (buckets, live) = (integers::<B>(buckets), form.rules.has_holes.then(|| integers::<B>(live)));
    let mut arrangement = Vec::with_capacity(form.planes() * form.numbers());
    for (plane, buckets) in buckets.chunks(form.length).enumerate() {
        let is_key = |position: usize| live.as_ref().is_none_or(|live| live[plane / form.rounds * form.length + position] != 0);
        let keys = (0..form.length).filter(|&position| is_key(position)).count();
        let chunks = keys.div_ceil(form.size).max(1);
        let mut order: Vec<usize> = (0..form.length).collect();
        order.sort_by_key(|&position| buckets[position]);
        let mut numbers = vec![-1; form.numbers()];
        let mut keys_before = 0;
        for (place, &position) in order.iter().enumerate() {
            numbers[position] = (keys_before / form.size).min(chunks - 1) as i32;
            numbers[2 * form.length + position] = place as i32;
            numbers[3 * form.length + place] = position as i32;
            if is_key(position) {
                numbers[form.length + position] = keys_before as i32;
                numbers[3 * form.length + form.places() + keys_before] = position as i32;
                keys_before += 1;
            }
        }
        if !form.rules.has_holes {
            for (group, queries) in order.chunks_mut(form.size).enumerate() {
                queries.sort_unstable();
                for (at, &position) in queries.iter().enumerate() {
                    let place = group * form.size + at;
                    numbers[2 * form.length + position] = place as i32;
                    numbers[3 * form.length + place] = position as i32;
                }
            }
        }
        let [keys_of_groups, columns_of_groups] = form.lists();
        let met_places = form.window() * form.size;
        for group in 0..form.groups() {
            let own = numbers[order[group * form.size]] as usize;
            let place = |slot: usize| met(form, own, slot / form.size, chunks).map(|chunk| chunk * form.size + slot % form.size);
            let key = |slot: usize| place(slot).map_or(-1, |place| numbers[3 * form.length + form.places() + place]);
            let mut met: Vec<(i32, usize)> = (0..met_places).map(|slot| (key(slot), slot)).filter(|&(key, _)| key >= 0).collect();
            met.sort_unstable();
            for (column, (key, slot)) in met.into_iter().enumerate() {
                numbers[keys_of_groups + group * form.columns() + column] = key;
                numbers[columns_of_groups + group * met_places + slot] = column as i32;
            }
        }
        numbers[form.numbers() - 1] = chunks as i32;
        arrangement.extend(numbers);
    }
    B::int_from_data(TensorData::new(arrangement, form.arrangement_shape()), &device)
}

pub(super) fn bias<B: Backend>(buckets: IntTensor<B>, arrangement: IntTensor<B>, pairs: FloatTensor<B>, form: &Form) -> FloatTensor<B> {
    let dtype = pairs.dtype();
    let (hidden, penalty, least) = (hidden_logit(dtype), self_penalty(dtype), least_visible_logit(dtype));
    let (buckets, arrangement) = (integers::<B>(buckets), integers::<B>(arrangement));
    let [pair_rows, pair_heads, ..] = pairs.shape().dims::<4>();
    let given = form.rules.has_pairs.then(|| numbers::<B>(pairs.clone()));
    let planes = Plane::all(form, &arrangement);
    let mut bias = Vec::with_capacity(form.bias_shape().num_elements());
    for plane in 0..form.planes() {
        let (first, round) = (plane / form.rounds * form.rounds, plane % form.rounds);
        let (row, head) = (plane / form.rounds / form.heads % pair_rows, plane / form.rounds % form.heads % pair_heads);
        let sees = |i: usize, j: usize| {
            let is_given = given.as_ref().is_none_or(|given| {
                let query = i.checked_sub(form.query_start).filter(|&query| query < form.queries);
                query.is_some_and(|query| given[((row * pair_heads + head) * form.queries + query) * form.length + j] > least)
            });
            is_given && (!form.rules.is_causal || j <= i)
        };
        let meets = |round: usize, i: usize, j: usize| {
            let buckets = &buckets[(first + round) * form.length..][..form.length];
            planes[first + round].looks_at(i, j) && (!form.rules.within_buckets || buckets[i] == buckets[j])
        };
        for place in 0..form.places() {
            for column in 0..form.columns() {
                let pair = planes[plane].query(place).zip(planes[plane].met_key(place / form.size, column));
                let pair = pair.filter(|&(i, j)| meets(round, i, j) && sees(i, j));
                bias.push(pair.map_or(hidden, |(i, j)| {
                    let counts = form.rules.counts_once && form.rounds > 1;
                    let meetings = if counts { (0..form.rounds).filter(|&round| meets(round, i, j)).count() } else { 1 };
                    let penalty = if i == j { penalty } else { 0.0 };
                    penalty - (meetings as f32).ln()
                }));
            }
        }
    }
    tensor::<B>(bias, form.bias_shape(), &pairs)
}

/// Source row of each gathered row, in order.
fn sources(arrangement: &[i32], rows: Rows, form: &Form) -> Vec<Option<usize>> {
    let mut sources = Vec::new();
    for (index, plane) in Plane::all(form, arrangement).iter().enumerate() {
        let of_head = |position: Option<usize>| position.map(|position| index / form.rounds * form.length + position);
        match rows {
            Rows::Queries => sources.extend((0..form.places()).map(|place| of_head(plane.query(place)))),
            Rows::Keys => {
                let columns = form.columns();
                sources.extend((0..form.groups() * columns).map(|at| of_head(plane.met_key(at / columns, at % columns))));
            }
            Rows::Contexts => sources.extend((0..form.length).map(|i| Some(index * form.places() + plane.query_place(i)))),
        }
    }
    sources
}

pub(super) fn taken<B: Backend>(x: FloatTensor<B>, arrangement: IntTensor<B>, rows: Rows, form: &Form) -> FloatTensor<B> {
    let width = *x.shape().last().expect("rows have a width");
    let (source, sources) = (numbers::<B>(x.clone()), sources(&integers::<B>(arrangement), rows, form));
    let mut taken = vec![0.0; sources.len() * width];
    for (taken, from) in taken.chunks_mut(width).zip(sources) {
        if let Some(from) = from {
            taken.copy_from_slice(&source[from * width..][..width]);
        }
    }
    tensor::<B>(taken, form.taken_shape(rows, width), &x)
}

pub(super) fn returned<B: Backend>(x: FloatTensor<B>, arrangement: IntTensor<B>, rows: Rows, form: &Form) -> FloatTensor<B> {
    let width = *x.shape().last().expect("rows have a width");
    let (taken, sources) = (numbers::<B>(x.clone()), sources(&integers::<B>(arrangement), rows, form));
    let shape = form.source_shape(rows, width);
    let mut sums = vec![0.0; shape.num_elements()];
    for (taken, to) in taken.chunks(width).zip(sources) {
        if let Some(to) = to {
            sums[to * width..][..width].iter_mut().zip(taken).for_each(|(sum, number)| *sum += number);
        }
    }
    tensor::<B>(sums, shape, &x)
}
