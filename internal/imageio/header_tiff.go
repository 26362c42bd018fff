package imageio

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// TIFF tags.
const (
	tagWidth       = 256
	tagHeight      = 257
	tagBits        = 258
	tagCompression = 259
	tagPhotometric = 262
	tagOrientation = 274
	tagICC         = 34675
)

// field is one entry of an image file directory.
type field struct {
	typ   uint16
	count uint32
	value uint32 // of integer types with one value
	off   int64  // where the values lie, when they do not fit into the entry
}

// readTIFF reads the first directory of a TIFF file.
func (h *Header) readTIFF(s *source) error {
	fields, err := readIFD(s)
	if err != nil {
		return err
	}
	h.Width, h.Height = int(fields[tagWidth].value), int(fields[tagHeight].value)
	h.Orientation = orientationOf(fields)
	if bits := fields[tagBits]; bits.count == 1 {
		h.deep = bits.value > 8
	} else if bits.count == 2 {
		h.deep = bits.value&0xffff > 8
	} else if b, err := s.at(bits.off, 2); err == nil && bits.count > 2 {
		h.deep = max(b[0], b[1]) > 8 // either byte order: depths are below 256
	}
	// Fax codings (2 to 4) name runs white and black, and the photometric tag says
	// what these look like: 1 shows the white runs black. Go's decoder goes by the names.
	fax := fields[tagCompression].value >= 2 && fields[tagCompression].value <= 4
	h.inverted = fax && fields[tagPhotometric].value == 1
	if p := fields[tagICC]; p.count > 4 && p.count <= maxProfile {
		h.icc = []span{{p.off, int(p.count)}}
	}
	return nil
}

// exifOrientation returns the orientation that an EXIF block names, 1 when it
// names none or is broken. The block may carry the JPEG prefix "Exif\0\0".
func exifOrientation(b []byte) int {
	b = bytes.TrimPrefix(b, []byte("Exif\x00\x00"))
	fields, err := readIFD(&source{r: bytes.NewReader(b), size: int64(len(b))})
	if err != nil {
		return 1
	}
	return orientationOf(fields)
}

func orientationOf(fields map[uint16]field) int {
	if o := fields[tagOrientation]; o.count == 1 && o.value >= 1 && o.value <= 8 {
		return int(o.value)
	}
	return 1
}

// readIFD reads the first image file directory of a TIFF structure: the form of
// TIFF files and of EXIF blocks.
func readIFD(s *source) (map[uint16]field, error) {
	b, err := s.at(0, 8)
	if err != nil {
		return nil, err
	}
	var order binary.ByteOrder
	switch string(b[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return nil, errors.New("no TIFF byte order mark")
	}
	at := int64(order.Uint32(b[4:]))
	if b, err = s.at(at, 2); err != nil {
		return nil, err
	}
	n := int(order.Uint16(b))
	if b, err = s.at(at+2, 12*n); err != nil {
		return nil, err
	}
	fields := make(map[uint16]field, n)
	for ; n > 0; n, b = n-1, b[12:] {
		f := field{typ: order.Uint16(b[2:]), count: order.Uint32(b[4:]), off: int64(order.Uint32(b[8:]))}
		switch f.typ {
		case 1: // BYTE
			f.value = uint32(b[8])
		case 3: // SHORT
			f.value = uint32(order.Uint16(b[8:]))
		case 4: // LONG
			f.value = order.Uint32(b[8:])
		}
		if tag := order.Uint16(b); fields[tag].typ == 0 { // the first of a tag counts
			fields[tag] = f
		}
	}
	return fields, nil
}
