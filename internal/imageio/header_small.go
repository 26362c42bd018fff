package imageio

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// readBMP reads a BITMAPINFOHEADER or a later form; a negative height means
// rows from the top.
func (h *Header) readBMP(s *source) error {
	b, err := s.at(14, 12)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(b) < 40 {
		return errors.New("OS/2 bitmap headers are not read")
	}
	w, hh := int64(int32(binary.LittleEndian.Uint32(b[4:]))), int64(int32(binary.LittleEndian.Uint32(b[8:])))
	h.Width, h.Height = int(w), int(max(hh, -hh))
	return nil
}

// readWebP walks the RIFF chunks: the size is in the first, EXIF behind the pixels.
func (h *Header) readWebP(s *source) error {
	for off := int64(12); ; {
		b, err := s.at(off, 8)
		if err != nil {
			break
		}
		kind, n := string(b[:4]), int64(binary.LittleEndian.Uint32(b[4:]))
		data := off + 8
		switch {
		case kind == "VP8X":
			if b, err = s.at(data, 10); err != nil {
				return err
			}
			h.Width, h.Height = 1+uint24(b[4:]), 1+uint24(b[7:])
		case kind == "VP8 " && h.Width == 0:
			if b, err = s.at(data, 10); err != nil {
				return err
			}
			h.Width, h.Height = int(binary.LittleEndian.Uint16(b[6:])&0x3fff), int(binary.LittleEndian.Uint16(b[8:])&0x3fff)
		case kind == "VP8L" && h.Width == 0:
			if b, err = s.at(data, 5); err != nil {
				return err
			}
			bits := binary.LittleEndian.Uint32(b[1:])
			h.Width, h.Height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
		case kind == "ANMF":
			if err := h.readFrame(s, data, n); err != nil {
				return err
			}
		case kind == "ICCP" && n <= maxProfile:
			h.icc = []span{{data, int(n)}}
		case kind == "EXIF" && n <= maxMetadata:
			if b, err = s.at(data, int(n)); err == nil {
				h.Orientation = exifOrientation(bytes.Clone(b))
			}
		}
		off = data + n + n&1
	}
	if h.Width == 0 {
		return ErrTruncated
	}
	return nil
}

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }
