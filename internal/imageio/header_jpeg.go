package imageio

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// readJPEG walks the marker segments up to the first scan.
func (h *Header) readJPEG(s *source) error {
	found := false
	for off := int64(2); ; {
		b, err := s.at(off, 2)
		if err != nil {
			return err
		}
		if b[0] != 0xff {
			return errors.New("no marker where one should be")
		}
		marker := b[1]
		switch {
		case marker == 0xff: // fill byte
			off++
			continue
		case marker == 0x01 || marker >= 0xd0 && marker <= 0xd8: // no length
			off += 2
			continue
		case marker == 0xda || marker == 0xd9: // start of scan, end of image
			if !found {
				return errors.New("no frame before the first scan")
			}
			return nil
		}
		if b, err = s.at(off+2, 2); err != nil {
			return err
		}
		n := int(binary.BigEndian.Uint16(b))
		if n < 2 {
			return errors.New("marker segment shorter than its length")
		}
		if err := h.jpegSegment(s, marker, off+4, n-2); err != nil {
			return err
		}
		found = found || isFrame(marker)
		off += 2 + int64(n)
	}
}

// isFrame says whether a marker is a start of frame (SOF0..SOF15); DHT, JPG and
// DAC lie between them.
func isFrame(marker byte) bool {
	return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc
}

// jpegSegment takes what the header wants from the segment of n bytes at off.
func (h *Header) jpegSegment(s *source, marker byte, off int64, n int) error {
	const exifID, iccID = "Exif\x00\x00", "ICC_PROFILE\x00"
	switch {
	case isFrame(marker):
		b, err := s.at(off, 6)
		if err != nil {
			return err
		}
		h.deep = b[0] > 8
		h.Height, h.Width = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
		h.progressive = marker == 0xc2
	case marker == 0xe1 && n > len(exifID):
		b, err := s.at(off, len(exifID))
		if err != nil {
			return err
		}
		if string(b) == exifID {
			if b, err = s.at(off, n); err != nil {
				return err
			}
			h.Orientation = exifOrientation(bytes.Clone(b))
		}
	case marker == 0xe2 && n > len(iccID)+2:
		b, err := s.at(off, len(iccID))
		if err != nil {
			return err
		}
		if string(b) == iccID { // pieces stand in order in every file seen
			h.icc = append(h.icc, span{off + int64(len(iccID)) + 2, n - len(iccID) - 2})
		}
	}
	return nil
}
