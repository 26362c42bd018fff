package prefetch

import (
	"cmp"
	"fmt"
	"slices"

	"longship/internal/rng"
	"longship/stages/port"
)

// order says which samples batch k of a run holds. It is a function of the
// seed, k and the sorted samples alone: a resumed run continues it anywhere,
// and a changed dataset takes effect at once.
//
// An epoch shows every sample Repeats times. Samples are shuffled within their
// group (one shape: only those can share a batch), cut into batches, the last
// of a group filled up from the group's beginning, and the batches shuffled.
type order struct {
	seed   uint64
	size   int
	groups []group
	epochs int // batches in an epoch

	epoch   int // the epoch that batches is of
	batches [][]*port.Sample
}

// group is the samples of one shape, repeats included.
type group struct {
	shape string
	items []*port.Sample
}

// newOrder sorts the samples by id and groups them.
func newOrder(seed uint64, samples []*port.Sample, batchSize int) *order {
	sorted := slices.Clone(samples)
	slices.SortFunc(sorted, func(a, b *port.Sample) int { return cmp.Compare(a.ID, b.ID) })
	o := &order{seed: seed, size: batchSize, epoch: -1}
	at := map[string]int{}
	for _, s := range sorted {
		key := fmt.Sprint(shapeOf(s, 1))
		i, ok := at[key]
		if !ok {
			i = len(o.groups)
			at[key] = i
			o.groups = append(o.groups, group{shape: key})
		}
		for range max(1, s.Repeats) {
			o.groups[i].items = append(o.groups[i].items, s)
		}
	}
	slices.SortFunc(o.groups, func(a, b group) int { return cmp.Compare(a.shape, b.shape) })
	for _, g := range o.groups {
		o.epochs += (len(g.items) + batchSize - 1) / batchSize
	}
	return o
}

// batch returns the samples of batch k, counted over all epochs.
func (o *order) batch(k int) []*port.Sample {
	if e := k / o.epochs; e != o.epoch {
		o.shuffle(e)
	}
	return o.batches[k%o.epochs]
}

func (o *order) shuffle(epoch int) {
	o.epoch, o.batches = epoch, o.batches[:0]
	for _, g := range o.groups {
		perm := rng.New(o.seed, "order/items", g.shape, uint64(epoch)).Perm(len(g.items))
		for i := 0; i < len(perm); i += o.size {
			b := make([]*port.Sample, o.size)
			for k := range b {
				b[k] = g.items[perm[(i+k)%len(perm)]]
			}
			o.batches = append(o.batches, b)
		}
	}
	perm := rng.New(o.seed, "order/batches", uint64(epoch)).Perm(len(o.batches))
	shuffled := make([][]*port.Sample, len(perm))
	for i, p := range perm {
		shuffled[i] = o.batches[p]
	}
	o.batches = shuffled
}

// shapeOf returns the shape of a batch of n samples like s.
func shapeOf(s *port.Sample, n int) port.Shape {
	sh := port.Shape{B: n, H: s.Bucket.H / 16, W: s.Bucket.W / 16, L: s.TextTokens}
	for _, r := range s.References {
		sh.Refs = append(sh.Refs, [2]int{r.Size.H / 16, r.Size.W / 16})
	}
	return sh
}
