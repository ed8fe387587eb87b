//! Lists of tensors that one operation goes over.

use burn::tensor::TensorMetadata;

/// True if there is anything to compute: no device may be asked for nothing.
pub fn has_elements(tensor: &impl TensorMetadata) -> bool {
    tensor.shape().num_elements() > 0
}

/// The results of `batched` for the items that it `takes`, if there are any, and of `alone` for
/// each of the others, in the order of the items.
pub fn in_parts<T, U>(
    items: Vec<T>,
    takes: impl Fn(&T) -> bool,
    batched: impl FnOnce(Vec<T>) -> Vec<U>,
    alone: impl Fn(T) -> U,
) -> Vec<U> {
    let mut batched = Some(batched);
    in_groups(items, takes, |taken, group| match taken {
        true => batched.take().expect("one group is taken")(group),
        false => group.into_iter().map(&alone).collect(),
    })
}

/// The items in groups of one key, which keep their order.
pub fn grouped<T, K: PartialEq>(
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> K,
) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let key = key(&item);
        match groups.iter_mut().find(|(of, _)| *of == key) {
            Some((_, group)) => group.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// The results of `run` for each group of the items of one key, in the order of the items.
pub fn in_groups<T, U, K: PartialEq>(
    items: Vec<T>,
    key: impl Fn(&T) -> K,
    mut run: impl FnMut(K, Vec<T>) -> Vec<U>,
) -> Vec<U> {
    let mut results: Vec<Option<U>> = items.iter().map(|_| None).collect();
    for (key, group) in grouped(items.into_iter().enumerate(), |(_, item)| key(item)) {
        let (places, group): (Vec<_>, Vec<_>) = group.into_iter().unzip();
        for (place, result) in places.into_iter().zip(run(key, group)) {
            results[place] = Some(result);
        }
    }
    results.into_iter().map(|result| result.expect("a result for every item")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items = vec![3, 1, 4, 1, 5, 9];
        let batched = |odd: Vec<i32>| odd.into_iter().map(|item| 10 * item).collect();
        let results = in_parts(items.clone(), |item| item % 2 == 1, batched, |item| -item);
        assert_eq!(results, [30, 10, -4, 10, 50, 90]);
        let sums = |_, group: Vec<i32>| {
            let sum: i32 = group.iter().sum();
            group.into_iter().map(|item| (item, sum)).collect()
        };
        let results = in_groups(items, |item| item % 3, sums);
        assert_eq!(results, [(3, 12), (1, 6), (4, 6), (1, 6), (5, 5), (9, 12)]);
    }

    #[test]
    fn nothing_is_not_asked_for_together() {
        let results = in_parts(vec![1, 2], |_| false, |_| unreachable!(), |item| item + 1);
        assert_eq!(results, [2, 3]);
    }
}
