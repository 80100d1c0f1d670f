// Package rfb speaks the protocol of remote displays (RFC 6143) from the host's side: it
// lets viewers through to a display and keeps the keyboard from those who may only look
// (Viewer), and it takes pictures and does input for us (Client).
//
// Neither end is trusted. Whatever a viewer or a display sends is bounded, and what is not
// known ends the connection: a message whose length is not known hides the next one.
//
// Read this file, then viewer.go with messages.go for the first, client.go, input.go,
// keys.go and paste.go for the second.
package rfb

import "errors"

// ErrProtocol means the other end does not speak RFB as it should.
var ErrProtocol = errors.New("rfb: protocol violation")

// Messages of a client.
const (
	setPixelFormat      = 0
	setEncodings        = 2
	updateRequest       = 3
	keyEvent            = 4
	pointerEvent        = 5
	clientCutText       = 6
	enableContinuous    = 150
	clientFence         = 248
	xvp                 = 250
	setDesktopSize      = 251
	qemu                = 255
	qemuExtendedKey     = 0
	qemuAudio           = 1
	qemuAudioSetFormat  = 2
	versionLen          = 12
	securityNone        = 1
	longestClipboard    = 1 << 20
	mostEncodings       = 1024
	mostScreens         = 16
	longestFencePayload = 64
)

// Messages of a server.
const (
	framebufferUpdate = 0
	setColourMap      = 1
	bell              = 2
	serverCutText     = 3
)

// Encodings of rectangles.
const (
	encodingRaw         int32 = 0
	encodingDesktopSize int32 = -223
	encodingClipboard   int32 = -0x3f5e1a32 // 0xc0a1e5ce
)
