package lorafile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"longship/gpu/tensor"
	"longship/internal/flux2"
	"longship/internal/golden"
	"longship/internal/safetensors"
	"longship/stages/port"
)

// host is a buffer in ordinary memory.
type host []byte

func (h host) Size() int64  { return int64(len(h)) }
func (h host) Host() []byte { return h }
func (h host) Free() error  { return nil }

// modules returns the Linears of the golden tiny model as Params without values.
func modules(t testing.TB) (params []port.Param) {
	t.Helper()
	text, err := os.ReadFile(golden.Path("tiny-dev", "transformer", "config.json"))
	require.NoError(t, err)
	cfg, err := flux2.ParseConfig(text)
	require.NoError(t, err)
	for _, m := range cfg.Modules() {
		p := port.Param{Module: m.Name, Rows: port.Rows{Name: m.Name, Lo: 0, Hi: m.Out}}
		for _, part := range m.Parts {
			p.Split = append(p.Split, port.Rows{Name: part.Name, Lo: part.Lo, Hi: part.Hi})
		}
		params = append(params, p)
	}
	return params
}

// stateOf makes the state whose pairs are those of a golden file: with prefix
// "diffusion_model." on whole modules, with "transformer." on their parts.
func stateOf(t testing.TB, file *safetensors.File, prefix string) *port.State {
	t.Helper()
	st := &port.State{Step: 7, Adapter: port.Adapter{Type: "lora", Arch: "flux2"}}
	add := func(p port.Param, name string) {
		for _, part := range []string{"lora_A", "lora_B"} {
			tn, ok := file.Tensor(prefix + name + "." + part + ".weight")
			if !ok {
				return
			}
			data, err := tn.Read()
			require.NoError(t, err)
			p.Part = part
			p.Value = tensor.New(host(data), 0, tensor.F32, tn.Shape...)
			st.Params = append(st.Params, p)
		}
	}
	for _, p := range modules(t) {
		if prefix == "diffusion_model." {
			add(p, p.Module)
			continue
		}
		for _, rows := range p.Split {
			q := p
			if len(p.Split) > 1 {
				q.Rows = rows
			}
			add(q, rows.Name)
		}
	}
	st.Adapter.Rank = st.Params[0].Value.Rows()
	st.Adapter.Alpha = float64(st.Adapter.Rank)
	require.NotEmpty(t, st.Params)
	return st
}

func openFile(t testing.TB, path string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func write(t testing.TB, opt Options, st *port.State) (*safetensors.File, Digest) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "a.safetensors"))
	require.NoError(t, err)
	d, err := Write(t.Context(), f, opt, st)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return openFile(t, f.Name()), d
}

// requireSame compares names, shapes and values, which are to be equal but for
// the rounding of one product.
func requireSame(t testing.TB, want, got *safetensors.File) {
	t.Helper()
	require.Equal(t, want.Names(), got.Names())
	for _, name := range want.Names() {
		a, _ := want.Tensor(name)
		b, _ := got.Tensor(name)
		require.Equal(t, a.Shape, b.Shape, name)
		av, err := a.Float32()
		require.NoError(t, err)
		bv, err := b.Float32()
		require.NoError(t, err)
		for i := range av {
			require.InDelta(t, av[i], bv[i], 1e-6*math.Abs(float64(av[i])), name)
		}
	}
}

func TestGoldenLayouts(t *testing.T) {
	split := golden.Path("lora", "diffusers", "pytorch_lora_weights.safetensors")
	var peft struct {
		Rank  int     `json:"transformer.r"`
		Alpha float64 `json:"transformer.lora_alpha"`
	}
	require.NoError(t, json.Unmarshal([]byte(openFile(t, split).Metadata["lora_adapter_metadata"]), &peft))
	for name, c := range map[string]struct {
		from, prefix string
		alpha        bool // the source's alpha is in its metadata
		layout, want string
	}{
		"parts as they are, folded":     {split, "transformer.", true, Diffusers, "diffusers_folded.safetensors"},
		"parts of fused modules joined": {split, "transformer.", true, ComfyUI, "bfl_lora_ab.safetensors"},
		"fused as they are":             {golden.Path("lora", "bfl_lora_ab.safetensors"), "diffusion_model.", false, ComfyUI, "bfl_lora_ab.safetensors"},
		"fused split":                   {golden.Path("lora", "bfl_lora_ab.safetensors"), "diffusion_model.", false, Diffusers, "converted/bfl_lora_ab.safetensors"},
		"shared A split":                {golden.Path("lora", "bfl_fused_shared.safetensors"), "diffusion_model.", false, Diffusers, "converted/bfl_fused_shared.safetensors"},
	} {
		t.Run(name, func(t *testing.T) {
			st := stateOf(t, openFile(t, c.from), c.prefix)
			if c.alpha {
				st.Adapter.Alpha = peft.Alpha
				require.Equal(t, peft.Rank, st.Adapter.Rank)
			}
			got, _ := write(t, Options{Layout: c.layout, DType: "fp32"}, st)
			requireSame(t, openFile(t, golden.Path("lora", c.want)), got)
		})
	}
}

// diffusers reads the config back as the reference's own file has it, but for
// alpha, which is folded.
func TestPEFTMetadata(t *testing.T) {
	from := openFile(t, golden.Path("lora", "diffusers", "pytorch_lora_weights.safetensors"))
	got, _ := write(t, Options{Layout: Diffusers, DType: "fp32"}, stateOf(t, from, "transformer."))
	var want, have map[string]any
	require.NoError(t, json.Unmarshal([]byte(from.Metadata["lora_adapter_metadata"]), &want))
	text := got.Metadata["lora_adapter_metadata"]
	require.NoError(t, json.Unmarshal([]byte(text), &have))
	require.Equal(t, want["transformer.r"], have["transformer.lora_alpha"])
	want["transformer.lora_alpha"] = have["transformer.lora_alpha"]
	want["transformer.init_lora_weights"] = true // of no meaning for loading
	require.Equal(t, want, have)
	require.True(t, strings.HasPrefix(text, "{\n  \"transformer."), "indented")
}

// Modules of different ranks are told apart.
func TestPEFTPatterns(t *testing.T) {
	var have struct {
		Rank  int            `json:"transformer.r"`
		Ranks map[string]int `json:"transformer.rank_pattern"`
		Alpha map[string]int `json:"transformer.alpha_pattern"`
	}
	text := peftMetadata([]ranked{{"b", 4}, {"a", 12}, {"c", 4}})
	require.NoError(t, json.Unmarshal([]byte(text), &have))
	require.Equal(t, 4, have.Rank)
	require.Equal(t, map[string]int{"a": 12}, have.Ranks)
	require.Equal(t, have.Ranks, have.Alpha)
}

// small is a state of one pair with the given B.
func small(b ...float32) *port.State {
	p := port.Param{Module: "double_blocks.0.img_attn.proj", Rows: port.Rows{Lo: 0, Hi: len(b)},
		Split: []port.Rows{{Name: "transformer_blocks.0.attn.to_out.0", Lo: 0, Hi: len(b)}}}
	a := p
	a.Part, a.Value = "lora_A", f32(1, 2, 3)
	a.Value.Shape, a.Value.Stride = []int{1, 3}, 3
	p.Part, p.Value = "lora_B", f32(b...)
	return &port.State{Adapter: port.Adapter{Type: "lora", Rank: 1, Alpha: 0.5, Arch: "flux2"}, Params: []port.Param{a, p}}
}

func f32(v ...float32) tensor.Tensor {
	var raw []byte
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return tensor.New(host(raw), 0, tensor.F32, len(v), 1)
}

func TestDTypes(t *testing.T) {
	for word, want := range map[string]safetensors.DType{
		"bf16": safetensors.BF16, "bfloat16": safetensors.BF16, "fp16": safetensors.F16, "float16": safetensors.F16,
		"fp32": safetensors.F32, "float32": safetensors.F32,
	} {
		t.Run(word, func(t *testing.T) {
			// 1+2⁻⁹ folds to a value that bfloat16 cannot hold and rounds to 0.5.
			got, _ := write(t, Options{Layout: ComfyUI, DType: word}, small(1+1.0/512, -3))
			b, ok := got.Tensor("diffusion_model.double_blocks.0.img_attn.proj.lora_B.weight")
			require.True(t, ok)
			require.Equal(t, want, b.DType)
			values, err := b.Float32()
			require.NoError(t, err)
			folded := float32(0.5 + 0.5/512)
			if want == safetensors.BF16 {
				folded = 0.5
			}
			require.Equal(t, []float32{folded, -1.5}, values)
		})
	}
	_, err := ParseDType("int8")
	require.ErrorContains(t, err, "none of bf16")
}

func TestEMAIsWhatIsSaved(t *testing.T) {
	st := small(1)
	st.Params[0].EMA, st.Params[1].EMA = st.Params[0].Value, f32(4)
	got, _ := write(t, Options{Layout: ComfyUI, DType: "fp32"}, st)
	b, _ := got.Tensor("diffusion_model.double_blocks.0.img_attn.proj.lora_B.weight")
	values, err := b.Float32()
	require.NoError(t, err)
	require.Equal(t, []float32{2}, values)
}

func TestRefused(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, c := range map[string]struct {
		opt  Options
		st   *port.State
		want string
	}{
		"not a number":  {Options{ComfyUI, "bf16", "x"}, small(1, float32(math.NaN())), "double_blocks.0.img_attn.proj.lora_B has the value NaN"},
		"infinite":      {Options{ComfyUI, "fp32", "x"}, small(inf), "+Inf"},
		"beyond fp16":   {Options{ComfyUI, "fp16", "x"}, small(2 * 65520), "which F16 cannot hold"},
		"layout":        {Options{"kohya", "bf16", "x"}, small(1), "none of"},
		"type":          {Options{ComfyUI, "bf16", "x"}, &port.State{Adapter: port.Adapter{Type: "lokr"}}, `"lokr" cannot be written`},
		"not in pairs":  {Options{ComfyUI, "bf16", "x"}, &port.State{Adapter: port.Adapter{Type: "lora"}, Params: small(1).Params[:1]}, "no low-rank pairs"},
		"pairs crossed": {Options{ComfyUI, "bf16", "x"}, &port.State{Adapter: port.Adapter{Type: "lora"}, Params: append(small(1).Params[1:], small(1).Params[0])}, "no low-rank pair"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Create(filepath.Join(t.TempDir(), "a"))
			require.NoError(t, err)
			defer f.Close()
			_, err = Write(t.Context(), f, c.opt, c.st)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestMetadataAndDigest(t *testing.T) {
	st := stateOf(t, openFile(t, golden.Path("lora", "bfl_lora_ab.safetensors")), "diffusion_model.")
	got, digest := write(t, Options{Layout: ComfyUI, DType: "fp32", Name: "my-style"}, st)
	m := got.Metadata
	require.Equal(t, "pt", m["format"])
	require.JSONEq(t, `{"step":7,"epoch":0}`, m["training_info"])
	require.Equal(t, "flux2", m["ss_base_model_version"])
	require.Equal(t, "my-style", m["ss_output_name"])

	raw, err := os.ReadFile(got.Path())
	require.NoError(t, err)
	data := raw[8+binary.LittleEndian.Uint64(raw):]
	sum := sha256.Sum256(data)
	require.Equal(t, hex.EncodeToString(sum[:]), m["sshs_model_hash"])
	require.Equal(t, m["sshs_model_hash"], digest.Data)
	legacy := sha256.Sum256(raw[min(1<<20, len(raw)):min(1<<20+1<<16, len(raw))])
	require.Equal(t, hex.EncodeToString(legacy[:4]), m["sshs_legacy_hash"])

	read, err := DigestFile(got.Path())
	require.NoError(t, err)
	require.Equal(t, digest, read)
	for _, at := range []int{0, 7, 20, len(raw) - 1} {
		bad := bytes.Clone(raw)
		bad[at] ^= 1
		path := filepath.Join(t.TempDir(), "bad")
		require.NoError(t, os.WriteFile(path, bad, 0o644))
		read, err := DigestFile(path)
		require.NoError(t, err)
		require.NotEqual(t, digest, read, "byte %d", at)
	}
}

// Over device memory, and in bf16, the same files come out.
func TestMemory(t *testing.T) {
	st := small(1, 2, -4)
	want, _ := write(t, Options{Layout: ComfyUI, DType: "fp32"}, st)
	for i, p := range st.Params {
		var raw []byte
		for _, v := range p.Value.Float32s() {
			raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(v)>>16))
		}
		st.Params[i].Value = tensor.New(device{raw}, 0, tensor.BF16, p.Value.Shape...)
	}
	st.Memory = deviceMemory{}
	got, _ := write(t, Options{Layout: ComfyUI, DType: "fp32"}, st)
	requireSame(t, want, got)
}

// device is memory that the host cannot address.
type device struct{ raw []byte }

func (d device) Size() int64  { return int64(len(d.raw)) }
func (d device) Host() []byte { return nil }
func (d device) Free() error  { return nil }

type deviceMemory struct{}

func (deviceMemory) Read(_ context.Context, t tensor.Tensor, dst []byte) error {
	copy(dst, t.Buf.(device).raw[t.Off:t.Off+t.Bytes()])
	return nil
}

func (deviceMemory) Write(_ context.Context, t tensor.Tensor, src []byte) error {
	copy(t.Buf.(device).raw[t.Off:], src)
	return nil
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f, err := os.Create(filepath.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	defer f.Close()
	_, err = Write(ctx, f, Options{Layout: ComfyUI, DType: "bf16"}, small(1))
	require.ErrorIs(t, err, context.Canceled)
}
