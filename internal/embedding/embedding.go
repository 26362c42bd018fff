// Package embedding is the form in which a text embedding is cached. The
// tower gives [L, J], L tokens with padding, and that is the shape of its
// cache.Ref. Where the padding is on the left all pad rows are equal, so only
// one is stored: r <= L stored rows stand for the L rows that begin with L-r
// more copies of the first. (Rows that all differ are stored whole, r = L.)
//
// Expand may be called from any goroutine.
package embedding

import "fmt"

// Expand fills dst [L, width] from stored [r, width], r between 1 and L.
func Expand(dst, stored []float32, width int) error {
	if width <= 0 || len(stored) == 0 || len(stored)%width != 0 || len(dst)%width != 0 || len(stored) > len(dst) {
		return fmt.Errorf("text embedding: %d stored values of width %d do not make %d", len(stored), width, len(dst))
	}
	pad := len(dst) - len(stored)
	copy(dst[pad:], stored)
	for at := 0; at < pad; at += width {
		copy(dst[at:at+width], stored[:width])
	}
	return nil
}
