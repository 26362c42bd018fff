// Package rng is the only source of randomness of a run: a counter-based
// generator, so that any element of any random tensor can be computed alone, in
// any order, on any number of cores, and a resumed run draws what an
// uninterrupted one would have drawn.
//
// A Gen is named by a seed, a purpose and ids (step, micro-batch, sample,
// tensor). The name is hashed with BLAKE3 to 128 bits, of which 64 are the key
// and 64 the upper half of the counter of Philox4x32-10 (Salmon, Moraes, Dror,
// Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The lower half
// counts elements. Two names share no values but by an accident of 2^-128.
//
// A Gen is a small value without state: it may be copied and used from any
// goroutine.
package rng

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/zeebo/blake3"
)

// Gen is one infinite random sequence. Each method reads the sequence at an
// element index; methods of different kinds read the same bits, so a Gen is
// used for one kind of value only.
type Gen struct {
	key    [2]uint32
	stream uint64
}

// New returns the generator of a name. Each id is an int, an int64, a uint64 or
// a string; integers of equal value are the same id. It panics on other types.
//
//	g := rng.New(seed, "train/noise", step, micro, sample.ID)
func New(seed uint64, purpose string, ids ...any) Gen {
	name := make([]byte, 0, 128)
	name = appendInt(name, seed)
	name = appendString(name, purpose)
	for _, id := range ids {
		switch v := id.(type) {
		case int:
			name = appendInt(name, uint64(v))
		case int64:
			name = appendInt(name, uint64(v))
		case uint64:
			name = appendInt(name, v)
		case string:
			name = appendString(name, v)
		default:
			panic(fmt.Sprintf("rng: id %v of type %T", id, id))
		}
	}
	sum := blake3.Sum256(name)
	return Gen{
		key:    [2]uint32{binary.LittleEndian.Uint32(sum[0:]), binary.LittleEndian.Uint32(sum[4:])},
		stream: binary.LittleEndian.Uint64(sum[8:]),
	}
}

// Words returns the key and the upper half of the counter, for a device that
// computes elements itself.
func (g Gen) Words() (key [2]uint32, stream uint64) { return g.key, g.stream }

// Uint64 returns element i, uniform over all values.
func (g Gen) Uint64(i uint64) uint64 {
	b := g.block(i >> 1)
	return b[i&1]
}

// Float64 returns element i, uniform over the multiples of 2^-53 in [0, 1).
func (g Gen) Float64(i uint64) float64 { return unit(g.Uint64(i)) }

// IntN returns element i, uniform over [0, n). The bias is below n·2^-64.
func (g Gen) IntN(i uint64, n int) int {
	if n <= 0 {
		panic(fmt.Sprintf("rng: IntN of %d", n))
	}
	hi, _ := bits.Mul64(g.Uint64(i), uint64(n))
	return int(hi)
}

// Perm returns a permutation of 0..n-1, each equally likely.
func (g Gen) Perm(n int) []int {
	p := make([]int, n)
	for i := range p {
		p[i] = i
	}
	g.Shuffle(n, func(i, j int) { p[i], p[j] = p[j], p[i] })
	return p
}

// Shuffle calls swap so that n things end in a random order (Fisher-Yates).
func (g Gen) Shuffle(n int, swap func(i, j int)) {
	for i := n - 1; i > 0; i-- {
		swap(i, g.IntN(uint64(i), i+1))
	}
}

// block returns 128 random bits as two words.
func (g Gen) block(n uint64) [2]uint64 {
	c := philox([4]uint32{uint32(n), uint32(n >> 32), uint32(g.stream), uint32(g.stream >> 32)}, g.key)
	return [2]uint64{uint64(c[0]) | uint64(c[1])<<32, uint64(c[2]) | uint64(c[3])<<32}
}

// unit maps a word to [0, 1) with the 53 bits that a float64 holds.
func unit(x uint64) float64 { return float64(x>>11) * 0x1p-53 }

// philox is Philox4x32 with 10 rounds; constants from the paper.
func philox(c [4]uint32, k [2]uint32) [4]uint32 {
	for range 10 {
		h0, l0 := bits.Mul32(0xD2511F53, c[0])
		h1, l1 := bits.Mul32(0xCD9E8D57, c[2])
		c = [4]uint32{h1 ^ c[1] ^ k[0], l1, h0 ^ c[3] ^ k[1], l0}
		k[0] += 0x9E3779B9
		k[1] += 0xBB67AE85
	}
	return c
}

// A name is a list of tagged, self-delimiting parts, so that no two lists
// become the same bytes.
func appendInt(b []byte, v uint64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, 'i'), v)
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, 's'), uint64(len(s)))
	return append(b, s...)
}
