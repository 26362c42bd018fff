package imageio

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// box is an ISO base media box: its payload's place in the file.
type box struct {
	kind string
	off  int64
	n    int64
}

// eachBox calls f for every box of the n bytes at off, until f returns an error.
func eachBox(s *source, off, n int64, f func(box) error) error {
	for end := off + n; off < end; {
		b, err := s.at(off, 8)
		if err != nil {
			return err
		}
		size, head, kind := int64(binary.BigEndian.Uint32(b)), int64(8), string(b[4:8])
		switch size {
		case 0: // to the end
			size = end - off
		case 1: // 64-bit size
			if b, err = s.at(off+8, 8); err != nil {
				return err
			}
			size, head = int64(binary.BigEndian.Uint64(b)), 16
		}
		if size < head || size > end-off {
			return fmt.Errorf("box %q of %d bytes does not fit", kind, size)
		}
		if err := f(box{kind, off + head, size - head}); err != nil {
			return err
		}
		off += size
	}
	return nil
}

// maxProperties bounds the properties of an AVIF; a plain one has under ten.
const maxProperties = 1 << 12

// readAVIF reads the properties of the primary item: ispe (size), irot and imir
// (orientation; they, not EXIF, say how an AVIF is shown), colr (colour).
func (h *Header) readAVIF(s *source) error {
	var meta metaBox
	err := eachBox(s, 0, s.size, func(b box) error {
		if b.kind == "meta" && b.n >= 4 && !meta.found {
			meta.found = true
			return meta.read(s, b)
		}
		return nil
	})
	if !meta.found && err == nil {
		err = errors.New("no meta box")
	}
	if !meta.found || meta.associations.n == 0 && err != nil {
		return err // what follows the meta box may be cut off: decoding will say so
	}
	used, err := associations(s, meta.associations, meta.primary)
	if err != nil {
		return err
	}
	turn, mirror := 0, -1
	for _, i := range used {
		if i < 1 || i > len(meta.properties) {
			continue
		}
		if err := h.avifProperty(s, meta.properties[i-1], &turn, &mirror); err != nil {
			return err
		}
	}
	h.Orientation = avifOrientation[mirror+1][turn]
	if len(h.icc) > 0 {
		h.cicp = nil // beside a profile it only says how the planes were coded
	}
	return nil
}

// metaBox is what is needed of an AVIF's meta box.
type metaBox struct {
	found        bool
	primary      uint32 // item
	properties   []box  // numbered from 1
	associations box    // which item has which properties
}

func (m *metaBox) read(s *source, meta box) error {
	return eachBox(s, meta.off+4, meta.n-4, func(b box) error {
		switch b.kind {
		case "pitm":
			v, err := s.at(b.off, 6)
			if err != nil {
				return err
			}
			m.primary = uint32(binary.BigEndian.Uint16(v[4:]))
			if v[0] > 0 {
				if v, err = s.at(b.off+4, 4); err != nil {
					return err
				}
				m.primary = binary.BigEndian.Uint32(v)
			}
		case "iprp":
			return eachBox(s, b.off, b.n, func(b box) error {
				switch b.kind {
				case "ipco":
					return eachBox(s, b.off, b.n, func(p box) error {
						if m.properties = append(m.properties, p); len(m.properties) > maxProperties {
							return errors.New("too many properties")
						}
						return nil
					})
				case "ipma":
					m.associations = b
				}
				return nil
			})
		}
		return nil
	})
}

// avifOrientation is the EXIF orientation of a turn by 90 degrees anticlockwise
// (the column) and then no mirror, top to bottom, or left to right (the row).
var avifOrientation = [3][4]int{{1, 8, 3, 6}, {4, 5, 2, 7}, {2, 7, 4, 5}}

func (h *Header) avifProperty(s *source, p box, turn, mirror *int) error {
	switch p.kind {
	case "ispe":
		b, err := s.at(p.off, 12)
		if err != nil {
			return err
		}
		w, hh := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
		if w > 1<<31-1 || hh > 1<<31-1 {
			return errors.New("size above 2^31-1")
		}
		h.Width, h.Height = int(w), int(hh)
	case "pixi":
		if b, err := s.at(p.off, 6); err == nil {
			h.deep = b[5] > 8
		}
	case "irot":
		b, err := s.at(p.off, 1)
		if err != nil {
			return err
		}
		*turn = int(b[0] & 3)
	case "imir":
		b, err := s.at(p.off, 1)
		if err != nil {
			return err
		}
		*mirror = int(b[0] & 1)
	case "colr":
		b, err := s.at(p.off, 4)
		if err != nil {
			return err
		}
		switch kind := string(b); {
		case (kind == "prof" || kind == "rICC") && p.n-4 <= maxProfile:
			h.icc = []span{{p.off + 4, int(p.n - 4)}}
		case kind == "nclx":
			if b, err = s.at(p.off+4, 6); err != nil {
				return err
			}
			// the decoder has undone the matrix and the range already
			h.cicp = &[4]byte{b[1], b[3], 0, 1}
		}
	}
	return nil
}

// associations returns the property numbers, from 1, of an item.
func associations(s *source, ipma box, item uint32) ([]int, error) {
	if ipma.n < 8 || ipma.n > maxMetadata {
		return nil, errors.New("no property associations")
	}
	b, err := s.at(ipma.off, int(ipma.n))
	if err != nil {
		return nil, err
	}
	version, wide := b[0], b[3]&1 == 1
	count := binary.BigEndian.Uint32(b[4:])
	b = b[8:]
	idLen, propLen := 2, 1
	if version >= 1 {
		idLen = 4
	}
	if wide {
		propLen = 2
	}
	for ; count > 0; count-- {
		if len(b) < idLen+1 {
			return nil, ErrTruncated
		}
		id := uint32(binary.BigEndian.Uint16(b))
		if idLen == 4 {
			id = binary.BigEndian.Uint32(b)
		}
		n := int(b[idLen])
		b = b[idLen+1:]
		if len(b) < n*propLen {
			return nil, ErrTruncated
		}
		if id == item {
			used := make([]int, n)
			for i := range used {
				if wide {
					used[i] = int(binary.BigEndian.Uint16(b[2*i:]) & 0x7fff)
				} else {
					used[i] = int(b[i] & 0x7f)
				}
			}
			return used, nil
		}
		b = b[n*propLen:]
	}
	return nil, errors.New("the primary item has no properties")
}
