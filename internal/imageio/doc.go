// Package imageio turns image files into the pixels that the VAE reads: it
// reads sizes from headers, decodes, brings colours to sRGB, drops or flattens
// alpha, applies the EXIF orientation, resizes and crops.
//
// The yardstick is Pillow, because the datasets and the numbers that users know
// come from it: a lossless file gives Pillow's bytes, a JPEG or WebP stays
// within 3/255 of them, and Resize follows Pillow's two-pass fixed-point
// arithmetic. Embedded colour profiles are the one deliberate difference: they
// are applied (Pillow ignores them unless asked).
//
// Everything here is a function of its arguments, safe from any number of
// goroutines, and has no lifecycle. Bulk loops use the cores that GOMAXPROCS
// gives, and the result does not depend on how many those are. Files are
// foreign bytes: sizes are checked before anything is allocated, all decoding of
// the process together stays within a limit of memory, and a panic inside a
// decoder becomes an error.
package imageio

// Version is part of every cache key that depends on pixels of this package.
// It changes whenever the same file may give different pixels.
const Version = 1
