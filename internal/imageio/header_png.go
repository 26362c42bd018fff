package imageio

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// maxMetadata bounds the pieces of metadata that are read whole.
const maxMetadata = 1 << 20

// readPNG walks all chunks, since eXIf may stand behind the pixels.
func (h *Header) readPNG(s *source) error {
	b, err := s.at(8, 25)
	if err != nil {
		return err
	}
	if string(b[4:8]) != "IHDR" {
		return errors.New("the first chunk is not IHDR")
	}
	w, hh := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	if w > 1<<31-1 || hh > 1<<31-1 {
		return errors.New("size above 2^31-1")
	}
	h.Width, h.Height, h.deep = int(w), int(hh), b[16] == 16
	for off := int64(8 + 25); ; {
		b, err := s.at(off, 8)
		if err != nil {
			return nil // cut off behind the size: decoding will say so
		}
		n, kind := int64(binary.BigEndian.Uint32(b)), string(b[4:8])
		data := off + 8
		switch {
		case kind == "IEND":
			return nil
		case kind == "eXIf" && n <= maxMetadata:
			if b, err = s.at(data, int(n)); err == nil {
				h.Orientation = exifOrientation(bytes.Clone(b))
			}
		case kind == "cICP" && n == 4:
			if b, err = s.at(data, 4); err == nil {
				h.cicp = (*[4]byte)(bytes.Clone(b))
			}
		case kind == "iCCP" && n > 2 && n <= maxProfile:
			h.readICCP(s, data, int(n))
		}
		off = data + n + 4
	}
}

// readICCP notes where the deflated profile of an iCCP chunk lies: behind a
// name of 1 to 79 bytes, its zero and the compression method 0.
func (h *Header) readICCP(s *source, off int64, n int) {
	b, err := s.at(off, min(n, 81))
	if err != nil {
		return
	}
	if i := bytes.IndexByte(b, 0); i > 0 && i+2 < len(b) && b[i+1] == 0 {
		h.icc, h.iccDeflated = []span{{off + int64(i) + 2, n - i - 2}}, true
	}
}
