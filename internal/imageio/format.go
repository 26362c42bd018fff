package imageio

import (
	"bytes"
	"path/filepath"
	"strings"
)

// Format is an image file format, found from a file's first bytes and never
// from its name.
type Format uint8

// The formats that Decode reads.
const (
	Unknown Format = iota
	PNG
	JPEG
	WebP
	AVIF
	GIF
	BMP
	TIFF
)

var formatNames = [...]string{"unknown", "PNG", "JPEG", "WebP", "AVIF", "GIF", "BMP", "TIFF"}

func (f Format) String() string { return formatNames[f] }

var extensions = map[string]bool{
	".png": true, ".jpg": true, ".jpeg": true, ".jfif": true, ".webp": true, ".avif": true,
	".gif": true, ".bmp": true, ".tif": true, ".tiff": true,
}

// HasImageName says whether a file's name ends as images of a known format do,
// in any case.
func HasImageName(name string) bool { return extensions[strings.ToLower(filepath.Ext(name))] }

// sniffLen is how many first bytes sniff wants.
const sniffLen = 32

// sniff finds the format from a file's first bytes.
func sniff(b []byte) Format {
	switch {
	case bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")):
		return PNG
	case bytes.HasPrefix(b, []byte("\xff\xd8\xff")):
		return JPEG
	case bytes.HasPrefix(b, []byte("GIF87a")), bytes.HasPrefix(b, []byte("GIF89a")):
		return GIF
	case bytes.HasPrefix(b, []byte("BM")):
		return BMP
	case bytes.HasPrefix(b, []byte("II*\x00")), bytes.HasPrefix(b, []byte("MM\x00*")):
		return TIFF
	case len(b) >= 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP":
		return WebP
	case len(b) >= 12 && string(b[4:8]) == "ftyp" && hasAVIFBrand(b[8:]):
		return AVIF
	}
	return Unknown
}

// hasAVIFBrand looks for an AVIF brand in the beginning of an ftyp box: the
// major brand, then (after the version) the compatible ones.
func hasAVIFBrand(brands []byte) bool {
	for i := 0; i+4 <= len(brands); i += 4 {
		if b := string(brands[i : i+4]); i != 4 && (b == "avif" || b == "avis") {
			return true
		}
	}
	return false
}
