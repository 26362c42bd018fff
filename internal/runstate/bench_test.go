package runstate

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/stages/port"
)

// benchState is a state of 8 million parameters with 8-bit moments.
func benchState() *port.State {
	st := stateAt(1)
	const rank, in, out = 64, 8192, 8192
	st.Adapter.Rank, st.Params = rank, nil
	for _, module := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		for _, part := range []port.Param{
			{Part: "lora_A", Value: f32([]int{rank, in}, 1)},
			{Part: "lora_B", Value: f32([]int{out, rank}, 1)},
		} {
			n := part.Value.Len()
			part.Module, part.Rows, part.Split = module, port.Rows{Hi: out}, []port.Rows{{Name: module, Hi: out}}
			part.Optimizer = map[string]tensor.Tensor{"m": u8(n, 1), "v": u8(n, 2), "m_absmax": f32([]int{n / 256}, 1), "v_absmax": f32([]int{n / 256}, 1)}
			st.Params = append(st.Params, part)
		}
	}
	return st
}

func BenchmarkSave(b *testing.B) {
	st := benchState()
	f := In(b.TempDir(), "cat")
	ctx := context.Background()
	opt := bf16(2)
	saved, err := f.Save(ctx, opt, st)
	require.NoError(b, err)
	b.SetBytes(saved.Bytes)
	for b.Loop() {
		st.Step++
		if _, err := f.Save(ctx, opt, st); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLatest(b *testing.B) {
	f := In(b.TempDir(), "cat")
	saved, err := f.Save(context.Background(), bf16(0), benchState())
	require.NoError(b, err)
	b.SetBytes(saved.Bytes)
	for b.Loop() {
		if _, _, err := f.Latest(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
