package cache

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Key is the content address of an entry: a BLAKE3-256 hash of everything that
// decides its value. See KeyBuilder.
type Key [32]byte

// String returns the key as 64 hexadecimal digits.
func (k Key) String() string { return hex.EncodeToString(k[:]) }

// Ref is the claim check that stands for a cached tensor in a message.
type Ref struct {
	Key   Key
	DType string // "f32", "bf16"
	Shape []int
	Kind  string // "latent", "text": for listings and messages
}

// IsZero says whether r refers to nothing.
func (r Ref) IsZero() bool { return r.Key == Key{} }

// String names the tensor in messages: "latent f32[128 32 32] 5f2a…".
func (r Ref) String() string {
	kind := r.Kind
	if kind == "" {
		kind = "tensor"
	}
	shape := strings.Trim(fmt.Sprint(r.Shape), "[]")
	return fmt.Sprintf("%s %s[%s] %s", kind, r.DType, shape, r.Key.String()[:16])
}
