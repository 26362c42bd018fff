package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"

	"longship/gpu/memory"
	"longship/gpu/tensor"
	"longship/internal/dtype"
	"longship/internal/flux2"
	"longship/internal/quant"
	"longship/internal/rng"
)

// Weights returns the frozen weights of a model, made from a seed as they are
// loaded: linear weights inside the blocks stored as qtype, those outside as
// outer, all of N(0, 1/in) cut at three deviations; norms are 1. The units are
// those of a quantised file.
func Weights(c flux2.Config, qtype, outer string, seed uint64) (*memory.WeightSet, error) {
	set := &memory.WeightSet{Config: c.JSON(), QType: qtype, Source: fmt.Sprintf("random weights of seed %d", seed)}
	var err error
	if set.Outer, err = layout(c.Outer(), outer); err != nil {
		return nil, err
	}
	for _, u := range c.Units() {
		unit, err := layout(u, qtype)
		if err != nil {
			return nil, err
		}
		set.Units = append(set.Units, unit)
	}
	set.Fill = func(ctx context.Context, u memory.Unit, dst []byte) error { return fill(ctx, u, dst, seed) }
	return set, nil
}

func layout(from flux2.Unit, qtype string) (memory.Unit, error) {
	dt, scaled, err := quant.Storage(qtype)
	if err != nil {
		return memory.Unit{}, err
	}
	u := memory.Unit{Name: from.Name, Block: from.Block}
	for _, t := range from.Tensors {
		if t.Norm() {
			quant.Place(&u, t.Name, tensor.BF16, false, t.Shape...)
		} else {
			quant.Place(&u, t.Name, dt, scaled, t.Shape...)
		}
	}
	return u, nil
}

// pieceElements is how many elements are made at a time, from one random word.
const pieceElements = 1 << 20

// fill makes the bytes of a unit, on all cores.
func fill(ctx context.Context, u memory.Unit, dst []byte, seed uint64) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, e := range u.Entries {
		size := e.DType.Size()
		in := e.Shape[len(e.Shape)-1]
		n := 1
		for _, d := range e.Shape {
			n *= d
		}
		data := dst[e.Off : e.Off+int64(n*size)]
		if len(e.Shape) == 1 {
			fillOnes(data, e.DType)
			continue
		}
		scale := 1 / math.Sqrt(float64(in))
		if e.Scale >= 0 {
			fillScales(dst[e.Scale:e.Scale+4*int64(e.Shape[0])], float32(scale*quantile(levels-1)/codeMax(e.DType)))
			scale = codeMax(e.DType) / quantile(levels-1)
		}
		table := codes(e.DType, scale)
		words := rng.New(seed, "bench/weights", e.Name)
		for lo := 0; lo < n; lo += pieceElements {
			piece := data[lo*size : min(lo+pieceElements, n)*size]
			g.Go(func() error {
				fillCodes(piece, table, size, words.Uint64(uint64(lo/pieceElements)))
				return ctx.Err()
			})
		}
	}
	return g.Wait()
}

func fillOnes(dst []byte, dt tensor.DType) {
	one := encode(dt, 1)
	for i := 0; i < len(dst); i += len(one) {
		copy(dst[i:], one)
	}
}

func fillScales(dst []byte, scale float32) {
	for i := 0; i < len(dst); i += 4 {
		binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(scale))
	}
}

// levels is how many different values an element can have: one for each byte of
// a random word.
const levels = 256

// quantile returns level i of a standard normal distribution.
func quantile(i int) float64 {
	p := (float64(i) + 0.5) / levels
	return math.Sqrt2 * math.Erfinv(2*p-1)
}

// codeMax is what the greatest element of a row is stored as in a type with row scales.
func codeMax(dt tensor.DType) float64 {
	switch dt {
	case tensor.E5M2:
		return 57344
	case tensor.E4M3:
		return 448
	default:
		return 127
	}
}

// codes returns the stored form of every level times scale, one behind the other.
func codes(dt tensor.DType, scale float64) []byte {
	var table []byte
	for i := range levels {
		table = append(table, encode(dt, float32(quantile(i)*scale))...)
	}
	return table
}

// encode returns the stored form of one value.
func encode(dt tensor.DType, v float32) []byte {
	switch dt {
	case tensor.E5M2:
		return []byte{dtype.E5M2Sat(v)}
	case tensor.E4M3:
		return []byte{dtype.E4M3Sat(v)}
	case tensor.I8:
		return []byte{byte(int8(math.RoundToEven(float64(v))))}
	case tensor.BF16:
		return binary.LittleEndian.AppendUint16(nil, dtype.BF16(v))
	default:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
	}
}

// fillCodes sets every element of size bytes to one of the table's, by the
// bytes of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators", OOPSLA 2014) from a state on.
func fillCodes(dst, table []byte, size int, state uint64) {
	for len(dst) > 0 {
		state += 0x9E3779B97F4A7C15
		z := state
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		z ^= z >> 31
		if size == 1 && len(dst) >= 8 {
			t := (*[levels]byte)(table)
			dst[0], dst[1], dst[2], dst[3] = t[byte(z)], t[byte(z>>8)], t[byte(z>>16)], t[byte(z>>24)]
			dst[4], dst[5], dst[6], dst[7] = t[byte(z>>32)], t[byte(z>>40)], t[byte(z>>48)], t[byte(z>>56)]
			dst = dst[8:]
			continue
		}
		for ; z != 0 && len(dst) > 0; z >>= 8 {
			i := int(byte(z)) * size
			dst = dst[copy(dst[:size], table[i:i+size]):]
		}
	}
}
