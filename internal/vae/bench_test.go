package vae

import "testing"

// BenchmarkEncode encodes one image of 128 x 128 with the quickstart's model.
func BenchmarkEncode(b *testing.B) {
	f, err := Open("../../examples/quickstart/model/vae")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	e := encoderOf(b, f, 0)
	const side = 128
	px := make([]float32, 3*side*side)
	b.SetBytes(int64(len(px)) * 4)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := e.Encode(b.Context(), px, side, side); err != nil {
			b.Fatal(err)
		}
	}
}
