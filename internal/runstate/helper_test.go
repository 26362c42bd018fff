package runstate

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/internal/lorafile"
	"longship/stages/port"
)

// childEnv makes the test binary a second process: its value is what to do,
// with the output folder as argument.
const childEnv = "LONGSHIP_RUNSTATE_CHILD"

func TestMain(m *testing.M) {
	if job := os.Getenv(childEnv); job != "" {
		os.Exit(child(job, os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// child holds a run, or saves step after step from the newest on and says so,
// until it is killed.
func child(job, output string) int {
	ctx := context.Background()
	f := In(output, "cat")
	if _, err := f.Lock(ctx, nil); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	if job == "hold" {
		select {}
	}
	from, err := strconv.Atoi(job)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for step := from; ; step++ {
		if _, err := f.Save(ctx, bf16(3), stateAt(step)); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(step)
	}
}

func bf16(keep int) SaveOptions {
	return SaveOptions{Files: []AdapterFile{{Layout: lorafile.ComfyUI, DType: "bf16", Keep: keep}}}
}

// path is where a file is right in the run's folder.
func (f Folder) path(file string) string { return filepath.Join(f.Dir, file) }

// adapter is the path of a step's adapter.
func (f Folder) adapter(step int) string { return f.series("").numbered(step) }

// host is a buffer in ordinary memory.
type host []byte

func (h host) Size() int64  { return int64(len(h)) }
func (h host) Host() []byte { return h }
func (h host) Free() error  { return nil }

func f32(shape []int, value float32) tensor.Tensor {
	t := tensor.New(nil, 0, tensor.F32, shape...)
	raw := make(host, 0, t.Bytes())
	for i := range t.Len() {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(value+float32(i)/1024))
	}
	t.Buf = raw
	return t
}

// beside is memory that the host reaches by copies alone.
type beside struct{}

func (beside) Read(_ context.Context, t tensor.Tensor, dst []byte) error {
	copy(dst, t.Region().Bytes())
	return nil
}

func (beside) Write(_ context.Context, t tensor.Tensor, src []byte) error {
	copy(t.Region().Bytes(), src)
	return nil
}

func u8(n int, value byte) tensor.Tensor {
	raw := make(host, n)
	for i := range raw {
		raw[i] = value + byte(i)
	}
	return tensor.New(raw, 0, tensor.U8, n)
}

// stateAt is a state whose every byte depends on the step.
func stateAt(step int) *port.State {
	st := &port.State{
		Step:     step,
		Adapter:  port.Adapter{Type: "lora", Rank: 2, Alpha: 1, Targets: []string{"*"}, Arch: "flux2", Base: "base"},
		Counters: map[string]int64{"skipped": int64(step % 3)},
		Settings: []port.Setting{{Name: "train.lr", Value: "0.0001"}, {Name: "train.network.rank", Value: "2", Fixed: true}},
		Dataset:  []string{"a", "b×2"},
	}
	for i, module := range []string{"double_blocks.0.img_attn.qkv", "single_blocks.0.linear1"} {
		v := float32(step*10 + i)
		rows := port.Rows{Name: module, Lo: 0, Hi: 6}
		for part, shape := range map[int][]int{0: {2, 4}, 1: {6, 2}} {
			p := port.Param{Module: module, Part: []string{"lora_A", "lora_B"}[part], Rows: rows, Split: []port.Rows{{Name: "x" + module, Lo: 0, Hi: 6}},
				Value: f32(shape, v), EMA: f32(shape, v/2),
				Optimizer: map[string]tensor.Tensor{"m": u8(shape[0]*shape[1], byte(step)), "m_absmax": f32([]int{1}, v*3)}}
			if part == 0 {
				st.Params = append(st.Params[:2*i], append([]port.Param{p}, st.Params[2*i:]...)...)
			} else {
				st.Params = append(st.Params, p)
			}
		}
	}
	return st
}

// requireState restores a checkpoint and compares all of it with stateAt.
func requireState(t require.TestingT, c *Checkpoint) {
	got, want := stateAt(0), stateAt(c.Step)
	require.NoError(t, c.Restore(context.Background(), got))
	require.Equal(t, want, got)
}

func newest(t testing.TB, f Folder) (*Checkpoint, []Ignored) {
	t.Helper()
	c, ignored, err := f.Latest(context.Background())
	require.NoError(t, err)
	return c, ignored
}

func save(t testing.TB, f Folder, opt SaveOptions, step int) Saved {
	t.Helper()
	saved, err := f.Save(context.Background(), opt, stateAt(step))
	require.NoError(t, err)
	return saved
}
