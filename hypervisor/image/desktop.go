package image

import (
	"embed"
	"io/fs"
	"path"
)

// desktopPackages are what a box with a screen has besides those of base: a display that
// speaks RFB, a window manager, a browser, and what films, reads and types.
var desktopPackages = []string{
	"chromium", "dbus", "ffmpeg", "fonts-dejavu-core", "fonts-ipafont-gothic", "fonts-liberation",
	"fonts-noto-color-emoji", "fonts-wqy-zenhei", "openbox", "tigervnc-standalone-server", "x11-utils", "x11-xserver-utils",
	"xdotool", "xterm",
}

//go:embed all:desktop
var desktopTree embed.FS

// desktopFiles are the settings of a desktop, by their path in the image.
func desktopFiles() map[string]string {
	files := map[string]string{}
	err := fs.WalkDir(desktopTree, "desktop", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := desktopTree.ReadFile(at)
		files[path.Join("/", at[len("desktop"):])] = string(text)
		return err
	})
	if err != nil {
		panic(err) // the files are in this program
	}
	return files
}
