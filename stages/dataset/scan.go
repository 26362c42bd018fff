package dataset

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"longship/internal/imageio"
	"longship/internal/runstate"
)

// found is an image file before it is looked at.
type found struct {
	path    string // absolute
	rel     string // below the scanned folder
	caption string // path of its caption file, "" where there is none
}

// scan is the result of walking a folder.
type scan struct {
	images []found        // by rel
	aside  []fault        // names of images that are no files
	others map[string]int // other files by ending
}

// fault is a file that cannot be used.
type fault struct {
	path string
	err  error
}

// pruned are folders that tools keep beside the images.
var pruned = map[string]bool{"_controls_": true, "_latent_cache": true, "_t_e_cache": true}

// scanFolder finds the images of a folder and of the folders in it. Hidden
// entries, tools' folders, those of runs, which hold loss curves, and those in
// skip (real paths) are left out. Links to folders are followed, and each folder
// is read once, so that links in a circle end.
func scanFolder(ctx context.Context, root, captionExt string, skip []string) (*scan, error) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	w := walker{ctx: ctx, captionExt: captionExt, seen: map[string]bool{}, out: &scan{others: map[string]int{}}}
	for _, s := range skip {
		w.seen[s] = true
	}
	if err := w.folder(root, real, ""); err != nil {
		return nil, err
	}
	slices.SortFunc(w.out.images, func(a, b found) int { return strings.Compare(a.rel, b.rel) })
	return w.out, nil
}

type walker struct {
	ctx        context.Context
	captionExt string
	seen       map[string]bool // real paths of folders
	out        *scan
}

// folder reads one folder. An unreadable folder below the root is set aside.
func (w *walker) folder(path, real, rel string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.seen[real] || rel != "" && runstate.IsRun(path) {
		return nil
	}
	w.seen[real] = true
	entries, err := os.ReadDir(path)
	if err != nil {
		if rel == "" {
			return err
		}
		w.out.aside = append(w.out.aside, fault{path, err})
		return nil
	}
	captions := map[string]string{} // by stem
	for _, e := range entries {
		if stem, ok := w.captionStem(e.Name()); ok {
			captions[stem] = filepath.Join(path, e.Name())
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := w.entry(e, path, real, rel, captions); err != nil {
			return err
		}
	}
	return nil
}

// captionStem returns a caption file's name without its ending.
func (w *walker) captionStem(name string) (string, bool) {
	cut := len(name) - len(w.captionExt)
	if cut <= 0 || !strings.EqualFold(name[cut:], w.captionExt) {
		return "", false
	}
	return name[:cut], true
}

func (w *walker) entry(e fs.DirEntry, path, real, rel string, captions map[string]string) error {
	name := e.Name()
	child := found{path: filepath.Join(path, name), rel: filepath.Join(rel, name)}
	childReal, mode := filepath.Join(real, name), e.Type()
	isImage := imageio.HasImageName(name)
	if mode&fs.ModeSymlink != 0 {
		info, err := os.Stat(child.path)
		if err != nil {
			if isImage {
				_, _, err = imageio.Open(child.path) // says where the link leads
				w.out.aside = append(w.out.aside, fault{child.path, err})
			}
			return nil
		}
		if mode = info.Mode(); mode.IsDir() {
			if childReal, err = filepath.EvalSymlinks(child.path); err != nil {
				return nil
			}
		}
	}
	switch {
	case mode.IsDir() && pruned[name]:
	case mode.IsDir():
		if isImage {
			w.out.aside = append(w.out.aside, fault{child.path, fmt.Errorf("is a folder, not an image; what is in it is used")})
		}
		return w.folder(child.path, childReal, child.rel)
	case !isImage:
		w.out.others[strings.ToLower(filepath.Ext(name))]++
	case !mode.IsRegular():
		w.out.aside = append(w.out.aside, fault{child.path, imageio.CheckRegular(mode)})
	default:
		child.caption = captions[strings.TrimSuffix(name, filepath.Ext(name))]
		w.out.images = append(w.out.images, child)
	}
	return nil
}

// shown returns a path as valid UTF-8 for ids and messages: with slashes, and
// bytes that are no UTF-8 written \xNN. Different paths stay different.
func shown(path string) string {
	path = filepath.ToSlash(path)
	if utf8.ValidString(path) && !strings.Contains(path, `\`) {
		return path
	}
	var b strings.Builder
	for i := 0; i < len(path); {
		r, n := utf8.DecodeRuneInString(path[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, path[i])
		case r == '\\':
			b.WriteString(`\\`)
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}
