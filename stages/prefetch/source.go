package prefetch

import (
	"context"
	"fmt"
	"math"
	"slices"

	"longship/cache"
	"longship/gpu"
	"longship/gpu/memory"
	"longship/stages/port"
)

// source is the port.Source of a run.
type source struct {
	dev        gpu.Device
	set        *memory.WeightSet
	room       int64 // for weights and what train takes; math.MaxInt64 without a limit
	load       func(ctx context.Context, taken int64) (*memory.Streamer, error)
	bound      bool
	shapes     []port.Shape
	dataset    []string
	validation []*port.Sample
	stager     *stager // of validation batches, on a stream of its own
	slot       *slot
}

func (s *source) Device() gpu.Device   { return s.dev }
func (s *source) Config() []byte       { return s.set.Config }
func (s *source) BaseIdentity() string { return s.set.Source }
func (s *source) Shapes() []port.Shape { return s.shapes }
func (s *source) Dataset() []string    { return s.dataset }
func (s *source) Validation() int      { return len(s.validation) }

// Layout returns the weights without memory.
func (s *source) Layout() memory.Source { return memory.Layout(s.set) }

// Room is what all weights leave.
func (s *source) Room(taken int64) (bytes int64, limited bool) {
	if s.room == math.MaxInt64 {
		return 0, false
	}
	resident := make([]bool, len(s.set.Units)) // none streamed
	return s.room - memory.Footprint(s.set.Outer, s.set.Units, resident, 0) - taken, true
}

// Weights plans what stays on the device, and loads.
func (s *source) Weights(ctx context.Context, compute gpu.Stream, taken int64) (memory.Source, error) {
	if s.bound {
		return nil, fmt.Errorf("the weights are bound to a compute stream already")
	}
	s.bound = true
	streamer, err := s.load(ctx, taken)
	if err != nil {
		return nil, err
	}
	streamer.Bind(compute)
	return streamer, nil
}

// LoadValidation stages validation sample i; its caption is never dropped.
func (s *source) LoadValidation(ctx context.Context, i int) (*port.Batch, error) {
	b, err := s.stager.stage(ctx, s.slot, i, s.validation[i:i+1], []bool{false})
	if err != nil {
		return nil, err
	}
	b.Source = s
	b.Free = func(after gpu.Event) { s.slot.after = after }
	return b, nil
}

// shapesOf lists the shapes of all batches: training batches of n, validation
// batches of one.
func shapesOf(train, validation []*port.Sample, n int) []port.Shape {
	seen := map[string]port.Shape{}
	for _, s := range train {
		sh := shapeOf(s, n)
		seen[fmt.Sprint(sh)] = sh
	}
	for _, s := range validation {
		sh := shapeOf(s, 1)
		seen[fmt.Sprint(sh)] = sh
	}
	keys := make([]string, 0, len(seen))
	for k := range seen {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := make([]port.Shape, len(keys))
	for i, k := range keys {
		out[i] = seen[k]
	}
	return out
}

// datasetOf names the training samples for the state.
func datasetOf(train []*port.Sample) []string {
	out := make([]string, len(train))
	for i, s := range train {
		out[i] = fmt.Sprintf("%s×%d", s.ID, max(1, s.Repeats))
	}
	slices.Sort(out)
	return out
}

// overlap names the validation samples whose image is trained on as well.
func overlap(train, validation []*port.Sample) (ids []string) {
	trained := map[cache.Key]bool{}
	for _, s := range train {
		trained[s.Content] = true
	}
	delete(trained, cache.Key{}) // of no image
	for _, s := range validation {
		if trained[s.Content] {
			ids = append(ids, s.ID)
		}
	}
	return ids
}
