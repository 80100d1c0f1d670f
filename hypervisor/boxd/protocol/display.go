package protocol

import (
	"net/url"
	"regexp"
	"time"
)

// Paths of the operations on the display. Where the image of a box has none they are refused
// as Missing.
const (
	PathDisplay = "/v1/display" // POST → RFB both ways
	PathPage    = "/v1/page"    // POST PageRequest → a PNG
	PathFilm    = "/v1/film"    // POST ?id= begins, GET ?id= ends and reads, DELETE ?id= deletes
)

// Query parameters and headers of those paths, and of PathHealth.
const (
	ParamID = "id"
	// ParamWait has PathHealth answer once the display does, or after so many milliseconds.
	ParamWait = "displayMs"

	HeaderDuration = "Psbx-Duration" // milliseconds of a film
)

// What a display is and what it is asked for at most.
const (
	DisplayWidth  = 1280
	DisplayHeight = 800

	// PageTime is how long a page may take to load. Nothing waits for a page longer than
	// that and PageSettle.
	PageTime = 20 * time.Second
	// PageSettle is how long a page that has loaded may go on fetching and drawing before
	// its picture is taken.
	PageSettle = 2 * time.Second
	// PageStart is how long a browser may take to start: seconds, and many on a busy host.
	PageStart = 45 * time.Second
	// PageShot is how long it may take for its picture.
	PageShot = 20 * time.Second

	// FilmTime and FilmBytes end a recording by themselves.
	FilmTime  = time.Hour
	FilmBytes = 512 << 20
	// FilmStart is how long it may take to begin a recording, and FilmEnd to end one.
	FilmStart = 30 * time.Second
	FilmEnd   = 60 * time.Second

	// MaxPicture bounds the PNG of a page.
	MaxPicture = 32 << 20
)

// PageRequest asks for the picture of a page.
type PageRequest struct {
	URL string `json:"url"`
}

// Display is what boxd says of its display.
type Display struct {
	Up     bool   `json:"up"`
	Detail string `json:"detail,omitempty"` // why it is not up
}

// filmID is what a recording may be called: it becomes the name of a file.
var filmID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckFilm refuses what a recording cannot be called.
func CheckFilm(id string) error {
	if !filmID.MatchString(id) {
		return Errorf(Invalid, "a recording is named by 1 to 64 letters, digits, - and _, not %q", id)
	}
	return nil
}

// CheckPage refuses what no browser opens as a page.
func CheckPage(address string) error {
	if u, err := url.Parse(address); err == nil {
		switch u.Scheme {
		case "http", "https", "file", "data", "about":
			return nil
		}
	}
	return Errorf(Invalid, "%.200q is not the address of a page, such as http://localhost:3000/", address)
}
