package lorafile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	"github.com/zeebo/blake3"

	"longship/internal/safetensors"
)

// Digest identifies a safetensors file: its header and its tensors' bytes.
type Digest struct {
	Header string `json:"header"` // BLAKE3 of the length and header, hex
	Data   string `json:"data"`   // SHA-256 of all that follows, hex; the sshs_model_hash
}

// The hashes that kohya's tools and the WebUI look a file up by stand in its
// header, although they are of what follows it: blanks of their length are
// written first and filled in at the end.
const (
	modelHashKey  = "sshs_model_hash"  // SHA-256 of the tensors' bytes, hex
	legacyHashKey = "sshs_legacy_hash" // first 8 digits of the SHA-256 of 64 KiB at 1 MiB into the file

	legacyStart, legacyEnd = 1 << 20, 1<<20 + 1<<16
)

var (
	modelHashBlank  = strings.Repeat("0", 2*sha256.Size)
	legacyHashBlank = strings.Repeat("0", 8)
)

// digester passes a file on as it is written, and hashes it.
type digester struct {
	dst    io.Writer
	header []byte // length and header, as far as it has come
	size   int    // of both, 0 while the length is not known
	at     int64  // bytes written
	data   hash.Hash
	legacy hash.Hash
}

func newDigester(dst io.Writer) *digester {
	return &digester{dst: dst, data: sha256.New(), legacy: sha256.New()}
}

func (d *digester) Write(p []byte) (int, error) {
	n, err := d.dst.Write(p)
	d.hash(p[:n])
	return n, err
}

func (d *digester) hash(p []byte) {
	if lo, hi := max(legacyStart, d.at), min(legacyEnd, d.at+int64(len(p))); lo < hi {
		d.legacy.Write(p[lo-d.at : hi-d.at])
	}
	d.at += int64(len(p))
	for len(p) > 0 && (d.size == 0 || len(d.header) < d.size) {
		want := 8
		if d.size > 0 {
			want = d.size
		}
		n := min(len(p), want-len(d.header))
		d.header = append(d.header, p[:n]...)
		p = p[n:]
		if d.size == 0 && len(d.header) == 8 {
			d.size = 8
			if n := binary.LittleEndian.Uint64(d.header); n <= safetensors.MaxHeader {
				d.size += int(n)
			}
		}
	}
	d.data.Write(p)
}

// finish fills the hashes into the header of the written file.
func (d *digester) finish(f *os.File) (Digest, error) {
	data := hex.EncodeToString(d.data.Sum(nil))
	d.fill(modelHashKey, modelHashBlank, data)
	d.fill(legacyHashKey, legacyHashBlank, hex.EncodeToString(d.legacy.Sum(nil))[:len(legacyHashBlank)])
	if _, err := f.WriteAt(d.header, 0); err != nil {
		return Digest{}, fmt.Errorf("write hashes into the header: %w", err)
	}
	return d.digest(), nil
}

func (d *digester) fill(key, blank, value string) {
	d.header = bytes.Replace(d.header, fmt.Appendf(nil, "%q:%q", key, blank), fmt.Appendf(nil, "%q:%q", key, value), 1)
}

func (d *digester) digest() Digest {
	header := blake3.Sum256(d.header)
	return Digest{Header: hex.EncodeToString(header[:]), Data: hex.EncodeToString(d.data.Sum(nil))}
}

// DigestFile reads a file and returns its digest.
func DigestFile(path string) (Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return Digest{}, err
	}
	defer f.Close()
	d := newDigester(io.Discard)
	if _, err := io.CopyBuffer(struct{ io.Writer }{d}, struct{ io.Reader }{f}, make([]byte, 1<<20)); err != nil {
		return Digest{}, err
	}
	return d.digest(), nil
}
