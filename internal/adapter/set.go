package adapter

import (
	"errors"
	"fmt"
	"math"

	"longship/gpu"
	"longship/gpu/tensor"
	"longship/internal/dtype"
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

// Param is one trained tensor and its gradient, on the device and of one type,
// float32 or bfloat16.
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
	Values tensor.Tensor // [n]; between tensors there may be padding, always zero
	Grads  tensor.Tensor // [n], laid out like Values
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
	dtype  tensor.DType
	values gpu.Buffer
	grads  gpu.Buffer
	dev    gpu.Device
}

// pair is a layer with its tensors.
type pair struct{ a, b Param }

// New takes device memory for the pairs of a model of the given number of
// blocks. dt is the type of values and gradients: tensor.F32, or tensor.BF16,
// half the memory, whose updates must be rounded stochastically (package optim
// does). Init or Write sets the values.
func New(dev gpu.Device, blocks int, layers []Layer, dt tensor.DType) (*Set, error) {
	s := &Set{layers: layers, blocks: make([]Block, blocks), byName: map[string][]pair{}, dev: dev, dtype: dt}
	if dt != tensor.F32 && dt != tensor.BF16 {
		return nil, fmt.Errorf("adapter: values of type %s: there are f32 and bf16", dt)
	}
	plan := make([][]Layer, blocks)
	var total int64
	for _, l := range layers {
		if l.Rank < 1 {
			return nil, fmt.Errorf("adapter: %s has rank %d", l.Name(), l.Rank)
		}
		plan[l.Module.Block] = append(plan[l.Module.Block], l)
		total += s.aligned(l.Rank*l.Module.In) + s.aligned(l.Rank*(l.Hi-l.Lo))
	}
	size := int64(dt.Size())
	var err error
	if s.values, err = dev.Alloc(size * total); err != nil {
		return nil, fmt.Errorf("adapter of %d modules: %w", len(layers), err)
	}
	if s.grads, err = dev.Alloc(size * total); err != nil {
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
		s.blocks[i].Values = tensor.New(s.values, size*from, dt, n)
		s.blocks[i].Grads = tensor.New(s.grads, size*from, dt, n)
	}
	return s, nil
}

// aligned rounds elements up so that every tensor starts at a multiple of tensor.Align bytes.
func (s *Set) aligned(n int) int64 {
	step := int64(tensor.Align / s.dtype.Size())
	return (int64(n) + step - 1) / step * step
}

func (s *Set) place(l Layer, part string, off int64, shape ...int) (Param, int64) {
	at := off * int64(s.dtype.Size())
	p := Param{Layer: l, Part: part, Value: tensor.New(s.values, at, s.dtype, shape...), Grad: tensor.New(s.grads, at, s.dtype, shape...)}
	return p, off + s.aligned(p.Value.Len())
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

// Write sets the values of all tensors: fill is given each with its elements,
// zero, to set; they are rounded to the nearest of the Set's type. Gradients
// become zero. It returns when the stream st has copied them.
func (s *Set) Write(st gpu.Stream, fill func(p Param, dst []float32) error) error {
	var wide []float32
	return s.stage(func(b Block, host gpu.Buffer) error {
		at := func(t tensor.Tensor) gpu.Region { return gpu.Region{Buf: host, Len: t.Bytes()} }
		clear(host.Host())
		st.Copy(b.Grads.Region(), at(b.Grads))
		if err := st.Sync(); err != nil {
			return err
		}
		for _, p := range b.Params {
			view := hostView(p.Value, b.Values, host)
			if s.dtype == tensor.F32 {
				if err := fill(p, view.Float32s()); err != nil {
					return err
				}
				continue
			}
			wide = grow(wide, view.Len())
			clear(wide)
			if err := fill(p, wide); err != nil {
				return err
			}
			dtype.F32ToBF16(tensor.Host[uint16](view), wide)
		}
		st.Copy(b.Values.Region(), at(b.Values))
		return st.Sync()
	})
}

// Read gives the values of all tensors, as they are after the work queued on
// st, to take, which must not keep them.
func (s *Set) Read(st gpu.Stream, take func(p Param, src []float32) error) error {
	var wide []float32
	return s.stage(func(b Block, host gpu.Buffer) error {
		st.Copy(gpu.Region{Buf: host, Len: b.Values.Bytes()}, b.Values.Region())
		if err := st.Sync(); err != nil {
			return err
		}
		for _, p := range b.Params {
			view := hostView(p.Value, b.Values, host)
			if s.dtype == tensor.F32 {
				wide = view.Float32s()
			} else {
				wide = grow(wide, view.Len())
				dtype.BF16ToF32(wide, tensor.Host[uint16](view))
			}
			if err := take(p, wide); err != nil {
				return err
			}
		}
		return nil
	})
}

// hostView is t's place in a host copy of its block.
func hostView(t, block tensor.Tensor, host gpu.Buffer) tensor.Tensor {
	return tensor.New(host, t.Off-block.Off, t.DType, t.Shape...)
}

// grow returns n elements, those of x where it has as many.
func grow(x []float32, n int) []float32 {
	if cap(x) < n {
		return make([]float32, n)
	}
	return x[:n]
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
