// Package embedding is the form in which a text embedding is cached. The
// tower gives [L, J], L tokens with padding, and that is the shape of its
// cache.Ref. Where the padding is on the left all pad rows are equal, so only
// one is stored: r <= L stored rows stand for the L rows that begin with L-r
// more copies of the first. (Rows that all differ are stored whole, r = L.)
//
// The functions may be called from any goroutine.
package embedding

import "fmt"

// Collapse returns the rows of an embedding [len(rows)/width, width] that must
// be stored, a slice of rows: without those at the head that repeat the next.
func Collapse(rows []float32, width int) []float32 {
	for len(rows) >= 2*width && equal(rows[:width], rows[width:2*width]) {
		rows = rows[width:]
	}
	return rows
}

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

func equal(a, b []float32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
