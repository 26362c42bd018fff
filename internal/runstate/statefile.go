package runstate

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/zeebo/blake3"

	"longship/gpu/tensor"
	"longship/internal/lorafile"
	"longship/internal/safetensors"
	"longship/stages/port"
)

// A state file is a safetensors file. Its tensors are those of the State,
// "<param>/value", "<param>/ema" and "<param>/<optimiser's name>", and one more,
// the checksum, which comes last; its metadata has one entry, the head.
const (
	formatVersion = 1 // raised when the meaning of a state changes
	headKey       = "longship_state"
	checksumName  = "~checksum" // U8 [32]; behind all others in the format's order
)

// head is what a state file says beside its tensors.
type head struct {
	Version  int              `json:"version"`
	Step     int              `json:"step"`
	Final    bool             `json:"final"` // the run's last step, when it was saved
	Files    []savedFile      `json:"files"` // the adapter files of this step
	Adapter  port.Adapter     `json:"adapter"`
	Counters map[string]int64 `json:"counters"`
	Settings []port.Setting   `json:"settings"`
	Dataset  []string         `json:"dataset"`
}

// savedFile is an adapter file that a state commits.
type savedFile struct {
	Series string          `json:"series"`
	Name   string          `json:"name"`
	Digest lorafile.Digest `json:"digest"`
}

// fileTypes are the types of tensors as safetensors calls them.
var fileTypes = map[tensor.DType]safetensors.DType{
	tensor.F32: safetensors.F32, tensor.BF16: safetensors.BF16, tensor.F16: safetensors.F16,
	tensor.E5M2: safetensors.E5M2, tensor.E4M3: safetensors.E4M3,
	tensor.I8: safetensors.I8, tensor.U8: safetensors.U8, tensor.I32: safetensors.I32, tensor.I64: safetensors.I64,
}

// named is a tensor of a state under its name in the file.
type named struct {
	name string
	t    tensor.Tensor
}

// tensorsOf lists a state's tensors.
func tensorsOf(st *port.State) (all []named) {
	for _, p := range st.Params {
		all = append(all, named{p.Name() + "/value", p.Value})
		if p.EMA.Valid() {
			all = append(all, named{p.Name() + "/ema", p.EMA})
		}
		for _, key := range slices.Sorted(maps.Keys(p.Optimizer)) {
			all = append(all, named{p.Name() + "/" + key, p.Optimizer[key]})
		}
	}
	return all
}

// writeState writes a state file, tensor by tensor.
func writeState(ctx context.Context, f *os.File, h head, st *port.State) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	sum := newSummer(text)
	var scratch []byte
	var outs []safetensors.Out
	for _, n := range tensorsOf(st) {
		dt, ok := fileTypes[n.t.DType]
		if !ok {
			return fmt.Errorf("tensor %s of type %s cannot be saved", n.name, n.t.DType)
		}
		outs = append(outs, safetensors.Out{Name: n.name, DType: dt, Shape: n.t.Shape, Write: func(w io.Writer) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			raw, err := bytesOf(ctx, st.Memory, n.t, &scratch)
			if err != nil {
				return err
			}
			sum.tensor(n.name, dt, n.t.Shape)
			sum.Write(raw)
			_, err = w.Write(raw)
			return err
		}})
	}
	outs = append(outs, safetensors.Out{Name: checksumName, DType: safetensors.U8, Shape: []int{32}, Write: func(w io.Writer) error {
		_, err := w.Write(sum.Sum(nil))
		return err
	}})
	_, err = safetensors.Write(f, map[string]string{headKey: string(text)}, outs)
	return err
}

// bytesOf returns a tensor's bytes, in scratch where the host cannot address them.
func bytesOf(ctx context.Context, m port.Memory, t tensor.Tensor, scratch *[]byte) ([]byte, error) {
	if m == nil {
		return t.Region().Bytes(), nil
	}
	if n := int(t.Bytes()); cap(*scratch) < n {
		*scratch = make([]byte, n)
	}
	raw := (*scratch)[:t.Bytes()]
	return raw, m.Read(ctx, t, raw)
}

// summer hashes a state file's head and tensors in the order of the file.
type summer struct{ hash.Hash }

func newSummer(head []byte) summer {
	s := summer{blake3.New()}
	s.field(head)
	return s
}

func (s summer) field(p []byte) {
	s.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(p))))
	s.Write(p)
}

// tensor adds what a tensor is; its bytes follow.
func (s summer) tensor(name string, dt safetensors.DType, shape []int) {
	s.field([]byte(name))
	s.field(fmt.Append(nil, dt, shape))
}

// readHead returns the head of an open state file.
func readHead(f *safetensors.File) (h head, err error) {
	text, ok := f.Metadata[headKey]
	if !ok {
		return head{}, fmt.Errorf("it is no state of a run")
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return head{}, fmt.Errorf("its head cannot be read: %w", err)
	}
	if h.Version > formatVersion {
		return head{}, fmt.Errorf("%w: it has format %d, this program reads %d", ErrNewer, h.Version, formatVersion)
	}
	if len(h.Files) == 0 {
		return head{}, fmt.Errorf("it names no adapter file")
	}
	return h, nil
}

// verifyState reads a state file whole and compares its checksum.
func verifyState(ctx context.Context, f *safetensors.File) error {
	sum := newSummer([]byte(f.Metadata[headKey]))
	buf := make([]byte, 1<<20)
	for _, info := range f.Tensors {
		t, _ := f.Tensor(info.Name)
		if info.Name == checksumName {
			want, err := t.Read()
			if err != nil {
				return err
			}
			if string(want) != string(sum.Sum(nil)) {
				return fmt.Errorf("its checksum does not match")
			}
			return nil
		}
		sum.tensor(info.Name, info.DType, info.Shape)
		for off := int64(0); off < info.Bytes; off += int64(len(buf)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			piece := buf[:min(int64(len(buf)), info.Bytes-off)]
			if _, err := t.ReadAt(piece, off); err != nil {
				return err
			}
			sum.Write(piece)
		}
	}
	return fmt.Errorf("it has no checksum")
}
