package latents

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"longship/internal/imageio"
	"longship/stages/port"
)

// Folder lists the images in a folder and the folders in it, sorted by path, for
// Encode. size says how large an image of w x h is encoded, both sides multiples
// of 16; nil keeps its size, less what does not fill the grid. What cannot be
// used is left out, with an error each that names the file.
func Folder(dir string, size func(w, h int) port.Bucket) (images []Image, faults []error) {
	if size == nil {
		size = func(w, h int) port.Bucket { return port.Bucket{W: w / 16 * 16, H: h / 16 * 16} }
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			faults = append(faults, err)
			return nil
		}
		if d.IsDir() || !imageio.HasImageName(d.Name()) {
			return nil
		}
		h, err := imageio.ReadHeaderFile(path)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", shown(path), err))
			return nil
		}
		b := size(h.Width, h.Height)
		if b.W < 16 || b.H < 16 {
			faults = append(faults, fmt.Errorf("%s: %dx%d pixels are too few", shown(path), h.Width, h.Height))
			return nil
		}
		images = append(images, Image{Path: path, Alpha: string(imageio.AlphaDrop), Size: b})
		return nil
	})
	if err != nil {
		faults = append(faults, err)
	}
	return images, faults
}
