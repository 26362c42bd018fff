package cache

import "encoding/hex"

// Key is the content address of an entry: a BLAKE3-256 hash of everything that
// decides its value.
type Key [32]byte

// String returns the key as 64 hexadecimal digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Ref is the claim check that stands for a cached tensor in a message.
type Ref struct {
	Key   Key
	DType string // "f32", "bf16"
	Shape []int
}

// IsZero says whether r refers to nothing.
func (r Ref) IsZero() bool { return r.Key == Key{} }
