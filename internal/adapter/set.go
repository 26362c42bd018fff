package adapter

import (
	"errors"
	"fmt"
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/nn"
	"longship/internal/rng"
)

// Layer is one low-rank pair.
type Layer struct {
	Target
	Rank  int
	Alpha float64 // the pair's product counts Alpha/Rank
}

// Scale returns the factor of B·A.
func (l Layer) Scale() float64 { return l.Alpha / float64(l.Rank) }

// Params returns the trained elements.
func (l Layer) Params() int64 { return int64(l.Rank) * int64(l.Module.In+l.Hi-l.Lo) }

// Layers gives every target a pair of the same rank and alpha.
func Layers(targets []Target, rank int, alpha float64) []Layer {
	ls := make([]Layer, len(targets))
	for i, t := range targets {
		ls[i] = Layer{Target: t, Rank: rank, Alpha: alpha}
	}
	return ls
}

// The two tensors of a pair, as Param.Part names them.
const (
	PartA = "lora_A" // [rank, in]
	PartB = "lora_B" // [rows, rank]
)

// Param is one trained tensor and its gradient, both float32 on the device.
type Param struct {
	Layer Layer
	Part  string // PartA or PartB
	Value tensor.Tensor
	Grad  tensor.Tensor // added to by backward passes
}

// Name identifies the tensor, in states and as the name of its random values.
func (p Param) Name() string { return p.Layer.Name() + "." + p.Part }

// Block is what belongs to one block of the model: its tensors lie one behind
// the other, so that they can be updated and moved as one.
type Block struct {
	Params []Param       // in the model's order, A before B
	Values tensor.Tensor // f32 [n]; between tensors there may be padding, always zero
	Grads  tensor.Tensor // f32 [n], laid out like Values
}

// Set is the adapter of a model: its low-rank pairs, in device memory, block by
// block. It implements nn.Adapter, so a model built with it computes with the
// pairs and its backward passes add to their gradients.
//
// A Set belongs to the goroutine that queues the work on it. Close frees it.
type Set struct {
	layers []Layer
	blocks []Block
	byName map[string][]pair // of a module
	values gpu.Buffer
	grads  gpu.Buffer
	dev    gpu.Device
}

// pair is a layer with its tensors.
type pair struct{ a, b Param }

// New takes device memory for the pairs of a model of the given number of
// blocks. Values and gradients are zero once Zero has run.
func New(dev gpu.Device, blocks int, layers []Layer) (*Set, error) {
	s := &Set{layers: layers, blocks: make([]Block, blocks), byName: map[string][]pair{}, dev: dev}
	plan := make([][]Layer, blocks)
	var total int64
	for _, l := range layers {
		if l.Rank < 1 {
			return nil, fmt.Errorf("adapter: %s has rank %d", l.Name(), l.Rank)
		}
		plan[l.Module.Block] = append(plan[l.Module.Block], l)
		total += aligned(l.Rank*l.Module.In) + aligned(l.Rank*(l.Hi-l.Lo))
	}
	var err error
	if s.values, err = dev.Alloc(4 * total); err != nil {
		return nil, fmt.Errorf("adapter of %d modules: %w", len(layers), err)
	}
	if s.grads, err = dev.Alloc(4 * total); err != nil {
		return nil, errors.Join(fmt.Errorf("gradients of %d modules: %w", len(layers), err), s.Close())
	}
	var off int64 // elements
	for i := range plan {
		from := off
		for _, l := range plan[i] {
			var p pair
			p.a, off = s.place(l, PartA, off, l.Rank, l.Module.In)
			p.b, off = s.place(l, PartB, off, l.Hi-l.Lo, l.Rank)
			s.blocks[i].Params = append(s.blocks[i].Params, p.a, p.b)
			s.byName[l.Module.Name] = append(s.byName[l.Module.Name], p)
		}
		n := int(off - from)
		s.blocks[i].Values = tensor.New(s.values, 4*from, tensor.F32, n)
		s.blocks[i].Grads = tensor.New(s.grads, 4*from, tensor.F32, n)
	}
	return s, nil
}

// aligned rounds elements up so that every tensor starts at a multiple of tensor.Align bytes.
func aligned(n int) int64 {
	const step = tensor.Align / 4
	return (int64(n) + step - 1) / step * step
}

func (s *Set) place(l Layer, part string, off int64, shape ...int) (Param, int64) {
	p := Param{Layer: l, Part: part,
		Value: tensor.New(s.values, 4*off, tensor.F32, shape...),
		Grad:  tensor.New(s.grads, 4*off, tensor.F32, shape...)}
	return p, off + aligned(p.Value.Len())
}

// Layers returns the pairs, in the order they were given.
func (s *Set) Layers() []Layer { return s.layers }

// Blocks returns the tensors of every block of the model, in forward order.
func (s *Set) Blocks() []Block { return s.blocks }

// Params returns all tensors, in the model's order, A before B.
func (s *Set) Params() []Param {
	var ps []Param
	for _, b := range s.blocks {
		ps = append(ps, b.Params...)
	}
	return ps
}

// Size returns the number of trained elements, padding not counted.
func (s *Set) Size() int64 {
	var n int64
	for _, l := range s.layers {
		n += l.Params()
	}
	return n
}

// Wrap puts the pairs of a module on its Linear.
func (s *Set) Wrap(module string, base nn.Linear) nn.Linear {
	for _, p := range s.byName[module] {
		base = &LoRA{Base: base, A: p.a, B: p.b, Lo: p.a.Layer.Lo, Hi: p.a.Layer.Hi, Scale: float32(p.a.Layer.Scale())}
	}
	return base
}

// Trains says whether the module has a pair.
func (s *Set) Trains(module string) bool { return len(s.byName[module]) > 0 }

// The ways to draw A; B starts at zero, so that training starts at the base.
const (
	Kaiming  = "kaiming"  // A uniform in ±1/√in
	Gaussian = "gaussian" // A normal with deviation 1/rank
)

// Init draws the starting values. They depend on the seed and the tensor's name
// alone: not on which other modules are trained.
func (s *Set) Init(st gpu.Stream, seed uint64, how string) error {
	return s.Write(st, func(p Param, dst []float32) error {
		if p.Part == PartB {
			clear(dst)
			return nil
		}
		g := rng.New(seed, "adapter/init", p.Name())
		switch how {
		case Kaiming:
			bound := 1 / math.Sqrt(float64(p.Layer.Module.In))
			g.FillUniform(dst, 0)
			for i, u := range dst {
				dst[i] = float32(bound * (2*float64(u) - 1))
			}
		case Gaussian:
			g.FillNormal(dst, 0)
			for i := range dst {
				dst[i] /= float32(p.Layer.Rank)
			}
		default:
			return fmt.Errorf("adapter: init %q is neither %s nor %s", how, Kaiming, Gaussian)
		}
		return nil
	})
}

// Write sets the values of all tensors: fill is given each with its elements to
// set. Gradients become zero. It returns when the stream st has copied them.
func (s *Set) Write(st gpu.Stream, fill func(p Param, dst []float32) error) error {
	return s.stage(func(b Block, host gpu.Buffer) error {
		at := func(t tensor.Tensor) gpu.Region { return gpu.Region{Buf: host, Len: t.Bytes()} }
		clear(host.Host())
		st.Copy(b.Grads.Region(), at(b.Grads))
		if err := st.Sync(); err != nil {
			return err
		}
		for _, p := range b.Params {
			if err := fill(p, hostView(p.Value, b.Values, host)); err != nil {
				return err
			}
		}
		st.Copy(b.Values.Region(), at(b.Values))
		return st.Sync()
	})
}

// Read gives the values of all tensors, as they are after the work queued on
// st, to take, which must not keep them.
func (s *Set) Read(st gpu.Stream, take func(p Param, src []float32) error) error {
	return s.stage(func(b Block, host gpu.Buffer) error {
		st.Copy(gpu.Region{Buf: host, Len: b.Values.Bytes()}, b.Values.Region())
		if err := st.Sync(); err != nil {
			return err
		}
		for _, p := range b.Params {
			if err := take(p, hostView(p.Value, b.Values, host)); err != nil {
				return err
			}
		}
		return nil
	})
}

// hostView is t's place in a host copy of its block.
func hostView(t, block tensor.Tensor, host gpu.Buffer) []float32 {
	return tensor.New(host, t.Off-block.Off, tensor.F32, t.Shape...).Float32s()
}

// stage runs f for every block that has tensors, with host memory for the largest.
func (s *Set) stage(f func(b Block, host gpu.Buffer) error) error {
	var size int64
	for _, b := range s.blocks {
		size = max(size, b.Values.Bytes())
	}
	host, err := s.dev.AllocHost(size)
	if err != nil {
		return fmt.Errorf("staging of adapters: %w", err)
	}
	for _, b := range s.blocks {
		if len(b.Params) == 0 {
			continue
		}
		if err := f(b, host); err != nil {
			return errors.Join(err, host.Free())
		}
	}
	return host.Free()
}

// Close frees the memory. Calling it twice is allowed.
func (s *Set) Close() error {
	var errs []error
	for _, b := range []gpu.Buffer{s.values, s.grads} {
		if b != nil {
			errs = append(errs, b.Free())
		}
	}
	return errors.Join(errs...)
}

var _ nn.Adapter = (*Set)(nil)
