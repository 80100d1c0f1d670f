package rfb

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// named are keys as browsers call them (KeyboardEvent.key), and what X calls them.
var named = map[string]uint32{
	"Backspace": 0xff08, "Tab": 0xff09, "Enter": 0xff0d, "Return": 0xff0d, "Pause": 0xff13, "ScrollLock": 0xff14,
	"Escape": 0xff1b, "Esc": 0xff1b, "Home": 0xff50, "ArrowLeft": 0xff51, "ArrowUp": 0xff52, "ArrowRight": 0xff53,
	"ArrowDown": 0xff54, "Left": 0xff51, "Up": 0xff52, "Right": 0xff53, "Down": 0xff54, "PageUp": 0xff55,
	"PageDown": 0xff56, "End": 0xff57, "PrintScreen": 0xff61, "Insert": 0xff63, "ContextMenu": 0xff67, "NumLock": 0xff7f,
	"F1": 0xffbe, "F2": 0xffbf, "F3": 0xffc0, "F4": 0xffc1, "F5": 0xffc2, "F6": 0xffc3, "F7": 0xffc4, "F8": 0xffc5,
	"F9": 0xffc6, "F10": 0xffc7, "F11": 0xffc8, "F12": 0xffc9, "Delete": 0xffff, "Del": 0xffff, "CapsLock": 0xffe5, "Space": ' ',
	"Zenkaku": 0xff28, "Hankaku": 0xff29, "Convert": 0xff23, "NonConvert": 0xff22, "KanaMode": 0xff2d,
}

// modifiers are held while the key after them is pressed.
var modifiers = map[string]uint32{
	"Shift": 0xffe1, "Control": 0xffe3, "Ctrl": 0xffe3, "Alt": 0xffe9, "Meta": 0xffeb, "Super": 0xffeb, "AltGraph": 0xfe03,
}

// CheckKey returns why a key cannot be pressed, as a sentence.
func CheckKey(name string) error {
	_, err := keysOf(name)
	return err
}

// errKey means a key that no keyboard has.
type errKey string

func (e errKey) Error() string {
	return fmt.Sprintf("there is no key %q; name one as browsers do, as in a, Enter, ArrowDown or Control+Shift+t", string(e))
}

// keysOf reads a key with its modifiers, as in Control+a. The last one is pressed while the
// others are held.
func keysOf(name string) ([]uint32, error) {
	var symbols []uint32
	rest := name
	for {
		at := strings.Index(rest, "+")
		if at <= 0 || at == len(rest)-1 { // the key + itself comes last, or alone
			break
		}
		m, ok := modifiers[rest[:at]]
		if !ok {
			return nil, errKey(name)
		}
		symbols = append(symbols, m)
		rest = rest[at+1:]
	}
	last, ok := named[rest]
	if !ok {
		last, ok = modifiers[rest]
	}
	if r, n := utf8.DecodeRuneInString(rest); !ok && n > 0 && n == len(rest) && r != utf8.RuneError {
		last, ok = symbolOf(r), r >= ' '
	}
	if !ok {
		return nil, errKey(name)
	}
	return append(symbols, last), nil
}

// symbolOf is the key that writes a character: Latin-1 is named by itself, everything else
// by its number in Unicode.
func symbolOf(r rune) uint32 {
	switch {
	case r == '\n' || r == '\r':
		return named["Enter"]
	case r == '\t':
		return named["Tab"]
	case r >= 0x20 && r < 0x7f, r >= 0xa0 && r <= 0xff:
		return uint32(r)
	}
	return 0x01000000 | uint32(r)
}
