package cache

import (
	"encoding/binary"
	"math"

	"github.com/zeebo/blake3"
)

// KeyBuilder hashes the fields that decide a value into its Key. Every field is
// preceded by its type and length and the whole by its domain, so that no two
// different lists of fields give the same bytes: ("ab", "c") is not ("a", "bc"),
// and the number 1 is not the text "1". The order of fields matters.
//
//	key := cache.NewKey("latent/1").Key(image).Int(width).Text("bf16").Sum()
//
// A producer puts its own version into the domain and raises it when it would
// write other values for the same fields.
type KeyBuilder struct {
	h *blake3.Hasher
}

// NewKey begins a key in a domain, the name and version of the producer.
func NewKey(domain string) *KeyBuilder {
	b := &KeyBuilder{h: blake3.New()}
	return b.field('d', []byte(domain))
}

func (b *KeyBuilder) field(kind byte, data []byte) *KeyBuilder {
	var head [9]byte
	head[0] = kind
	binary.LittleEndian.PutUint64(head[1:], uint64(len(data)))
	b.h.Write(head[:])
	b.h.Write(data)
	return b
}

// Text adds a string.
func (b *KeyBuilder) Text(s string) *KeyBuilder { return b.field('s', []byte(s)) }

// Bytes adds bytes.
func (b *KeyBuilder) Bytes(p []byte) *KeyBuilder { return b.field('b', p) }

// Key adds another key: the hash of a file, or of a part built before.
func (b *KeyBuilder) Key(k Key) *KeyBuilder { return b.field('k', k[:]) }

// Int adds integers, as one field.
func (b *KeyBuilder) Int(n ...int) *KeyBuilder {
	p := make([]byte, 0, 8*len(n))
	for _, v := range n {
		p = binary.LittleEndian.AppendUint64(p, uint64(v))
	}
	return b.field('i', p)
}

// Float adds a number by its bits.
func (b *KeyBuilder) Float(f float64) *KeyBuilder {
	return b.field('f', binary.LittleEndian.AppendUint64(nil, math.Float64bits(f)))
}

// Bool adds a truth value.
func (b *KeyBuilder) Bool(v bool) *KeyBuilder {
	if v {
		return b.field('t', []byte{1})
	}
	return b.field('t', []byte{0})
}

// Sum returns the key of the fields added so far.
func (b *KeyBuilder) Sum() Key {
	var k Key
	b.h.Sum(k[:0])
	return k
}

// HashBytes returns the content key of data, the one that File gives for a
// file that holds it.
func HashBytes(data []byte) Key { return blake3.Sum256(data) }
