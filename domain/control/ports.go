package control

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/ledger"
	"parallelsandbox/domain/metering"
	"parallelsandbox/domain/money"
)

// Guests reaches the agent program inside running boxes. Errors are faults: Unavailable
// when the box does not answer (nothing was done), OutcomeUnknown when the link was
// lost after the box may have begun, Invalid and NotFound with a sentence about the input.
type Guests interface {
	Exec(ctx context.Context, id box.ID, c Command) (Result, error)
	// Put unpacks a gzip tar under /work/<dest>.
	Put(ctx context.Context, id box.ID, dest string, archive io.Reader) (Put, error)
	// Fetch reads a file, or a directory as tar.gz, under /work.
	Fetch(ctx context.Context, id box.ID, path string) (File, error)
	// Wire makes the box's wiring table so; an older revision than the box has is ignored.
	Wire(ctx context.Context, id box.ID, w Wiring) error
	Health(ctx context.Context, id box.ID) (Health, error)
	// Dial opens a byte stream to a TCP port inside the box.
	Dial(ctx context.Context, id box.ID, port int) (net.Conn, error)
}

// Command is one execution handed to a box.
type Command struct {
	Exec       string // id, the same as on the ledger
	Cmd        string // run by bash -c
	Cwd        string // relative to /work
	Env        map[string]string
	Timeout    time.Duration
	Background bool
	Limit      int64 // bytes kept of each of stdout and stderr
}

// Result is how an execution ended. Text is valid UTF-8: other bytes have been replaced.
type Result struct {
	Stdout, Stderr string
	ExitCode       int
	TimedOut       bool
	Cancelled      bool
	BgID           string // of a background command
	LogPath        string // where a background command's output goes, in the box
	StdoutBytes    int64  // written by the command, kept or not
	StderrBytes    int64
	Kept           Kept
	Duration       time.Duration
}

// Kept tells which bytes of an output that was over the limit are in the answer: the
// first Head and the last Tail of each stream.
type Kept struct {
	Truncated                                      bool
	StdoutHead, StdoutTail, StderrHead, StderrTail int64
}

// Put is what an upload wrote.
type Put struct {
	Files int
	Bytes int64
}

// File is content on its way out of a box. Size is -1 when it is not known beforehand.
type File struct {
	Name    string
	Size    int64
	Archive bool
	Body    io.ReadCloser
}

// Wiring is the whole table a box should have.
type Wiring struct {
	Revision        int
	ExternalBaseURL string
	Services        []box.Service
}

// Health is what the agent program in a box says of itself.
type Health struct {
	OK             bool   `json:"ok"`
	Version        string `json:"version,omitempty"`
	UptimeSec      int64  `json:"uptimeSec,omitempty"`
	WiringRevision int    `json:"wiringRevision,omitempty"`
	Processes      int    `json:"processes,omitempty"`
	Display        string `json:"display,omitempty"` // up or down; empty where its image has none
	Detail         string `json:"detail,omitempty"`  // why it is not ok, or the display down
}

// Vault keeps secret values, encrypted at rest.
type Vault interface {
	Set(ctx context.Context, tenant, name string, value []byte) error
	Remove(ctx context.Context, tenant, name string) error
	Values(ctx context.Context, tenant string, names []string) (map[string]string, error)
}

// Blobs keeps downloads until their links have expired.
type Blobs interface {
	Put(ctx context.Context, key string, body io.Reader) (bytes int64, err error)
	Open(ctx context.Context, key string) (io.ReadCloser, int64, error)
}

// Views answers questions that one stream alone cannot: the read models.
type Views interface {
	// Reached returns when the read models hold everything up to pos.
	Reached(ctx context.Context, pos ledger.Position) error
	Boxes(ctx context.Context, q BoxQuery) ([]BoxRow, error)
	Steps(ctx context.Context, id box.ID, limit int) ([]Step, error)
	History(ctx context.Context, q HistoryQuery) ([]HistoryRow, error)
	// OpenExecs lists the commands a replica announced and did not finish.
	OpenExecs(ctx context.Context, replica string) ([]OpenExec, error)
	// Operation is the revision of the event that began an operation of a box: a command, an
	// upload or a download. It returns ok false when there was none.
	Operation(ctx context.Context, id box.ID, operation string) (rev ledger.Revision, ok bool, err error)
	// Spares lists the spares that wait on a host with an image, oldest first.
	Spares(ctx context.Context, host, image string) ([]box.ID, error)
	// Movements lists the steps between two moments to a tenant's balance, and the balance
	// before the first.
	Movements(ctx context.Context, tenant string, from, until time.Time) (before money.Milli, all []Movement, err error)
	// Takeovers lists takeovers, newest first.
	Takeovers(ctx context.Context, q TakeoverQuery) ([]TakeoverRow, error)
	// OpenTakeovers lists the takeovers of all tenants that are not over.
	OpenTakeovers(ctx context.Context) ([]OpenTakeover, error)
	// Recordings lists the recordings of a box, oldest first.
	Recordings(ctx context.Context, id box.ID) ([]RecordingRow, error)
	// Spent is what was debited for a box.
	Spent(ctx context.Context, id box.ID) (Spent, error)
	// Unbilled is the box time until a moment that is not debited yet.
	Unbilled(ctx context.Context, id box.ID, until time.Time) ([]metering.Line, error)
	// KeyByHash returns ok false when no such key was ever issued.
	KeyByHash(ctx context.Context, hash string) (row KeyRow, ok bool, err error)
}

// BoxQuery chooses boxes of one tenant, newest first. Before is the RequestedAt and id of the
// last row of the page before.
type BoxQuery struct {
	Tenant   string
	Phase    box.Phase // empty for all
	Live     bool      // only boxes that have not ended
	BeforeAt time.Time
	BeforeID string
	Limit    int
}

// BoxRow is a box in a list.
type BoxRow struct {
	ID           box.ID     `json:"id"`
	Name         string     `json:"name,omitempty"`
	Note         string     `json:"note,omitempty"`
	Status       box.Phase  `json:"status"`
	Why          string     `json:"why,omitempty"`
	Host         string     `json:"-"`
	Image        string     `json:"image"`
	StartedFrom  string     `json:"startedFrom,omitempty"`
	Client       string     `json:"client,omitempty"` // who started it
	Agent        string     `json:"agent,omitempty"`
	Steps        int        `json:"steps"`
	RequestedAt  time.Time  `json:"requestedAt"`
	ReadyAt      *time.Time `json:"readyAt,omitempty"`
	EndedAt      *time.Time `json:"endedAt,omitempty"`
	LastActivity time.Time  `json:"lastActivity"`
}

// Step is one thing that was done in a box: a command, an upload, a download or a
// change of the wiring.
type Step struct {
	Step       int       `json:"step"`
	Kind       string    `json:"kind"` // exec, sync, get, wire, shot or record
	Text       string    `json:"text"` // the command, the path, the change, what is shown
	Note       string    `json:"note,omitempty"`
	At         time.Time `json:"at"`
	Outcome    string    `json:"outcome,omitempty"` // running until it has one
	ExitCode   *int      `json:"exitCode,omitempty"`
	BgID       string    `json:"bgId,omitempty"`
	Bytes      int64     `json:"bytes,omitempty"`
	DurationMs int64     `json:"durationMs,omitempty"`
	Client     string    `json:"client,omitempty"`
	Agent      string    `json:"agent,omitempty"`
	Wiring     int       `json:"wiring,omitempty"` // wiring revision it ran under
}

// HistoryQuery chooses events of one box, oldest first, after a revision.
type HistoryQuery struct {
	Box   box.ID
	After ledger.Revision
	Types []string // stored names; empty for all
	From  time.Time
	Until time.Time
	Limit int
}

// HistoryRow is one event as support sees it.
type HistoryRow struct {
	Revision ledger.Revision `json:"revision"`
	Position ledger.Position `json:"position"`
	Type     string          `json:"type"`
	Version  int             `json:"version"`
	At       time.Time       `json:"at"`
	Meta     ledger.Meta     `json:"meta"`
	Data     json.RawMessage `json:"data"`
}

// OpenExec is a command without an end on the ledger.
type OpenExec struct {
	Box  box.ID
	Exec string
}

// TakeoverQuery chooses takeovers of one tenant.
type TakeoverQuery struct {
	Tenant   string
	Takeover string // empty for all
	Open     bool   // only those that are not over
	Limit    int
}

// TakeoverRow is a takeover in a list.
type TakeoverRow struct {
	Takeover    string     `json:"takeover"`
	Box         box.ID     `json:"box"`
	BoxName     string     `json:"boxName,omitempty"`
	By          box.Side   `json:"by"` // agent, or person who came unasked
	Note        string     `json:"note,omitempty"`
	State       string     `json:"state"`            // waiting, held, returned, declined, expired or ended
	Person      string     `json:"person,omitempty"` // who holds it, or held it last
	Message     string     `json:"message,omitempty"`
	RequestedAt time.Time  `json:"requestedAt"`
	ExpiresAt   time.Time  `json:"expiresAt"`
	JoinedAt    *time.Time `json:"joinedAt,omitempty"`
	EndedAt     *time.Time `json:"endedAt,omitempty"`
}

// OpenTakeover is a takeover that is not over.
type OpenTakeover struct {
	Box      box.ID
	Takeover string
	Until    time.Time
	Seat     string // empty while nobody is at the screen
	Replica  string // where that person is connected
}

// RecordingRow is a recording in a list.
type RecordingRow struct {
	Recording  string     `json:"recording"`
	State      string     `json:"state"` // running, kept or lost
	Reason     string     `json:"reason,omitempty"`
	Bytes      int64      `json:"bytes,omitempty"`
	DurationMs int64      `json:"durationMs,omitempty"`
	StartedAt  time.Time  `json:"startedAt"`
	EndedAt    *time.Time `json:"endedAt,omitempty"`
	URL        string     `json:"url,omitempty"` // signed; empty when it is not kept any more
	Blob       string     `json:"-"`
}

// KeyRow is an API key found by its hash.
type KeyRow struct {
	Key    string // id
	Tenant string
}

// Screens reaches the displays of running boxes. Errors are faults, as those of Guests are;
// Unavailable as well where the image of the box has no display.
type Screens interface {
	// Screen opens the display to one viewer: RFB, from the version the server sends on.
	// What the viewer does with pointer, keyboard and clipboard passes only while mayType
	// answers true; everything else passes always.
	Screen(ctx context.Context, id box.ID, mayType func() bool) (io.ReadWriteCloser, error)
	// Shot is what the display shows now.
	Shot(ctx context.Context, id box.ID) (Picture, error)
	// Page is a page in a fresh browser on the display. Invalid when it cannot be loaded.
	Page(ctx context.Context, id box.ID, url string) (Picture, error)
	// Input does the actions on the display, one after another.
	Input(ctx context.Context, id box.ID, actions []Action) error
	// Record begins a recording of the display. Under the same id it is begun once.
	Record(ctx context.Context, id box.ID, recording string) error
	// Finish ends a recording and reads it. It can be called again until Discard.
	Finish(ctx context.Context, id box.ID, recording string) (Film, error)
	// Discard ends a recording and deletes what the box has of it.
	Discard(ctx context.Context, id box.ID, recording string) error
}

// Picture is a PNG.
type Picture struct {
	PNG           []byte
	Width, Height int // pixels
}

// Film is a recording, an mp4. Its reader closes Body.
type Film struct {
	Body     io.ReadCloser
	Size     int64
	Duration time.Duration
}

// Action is one thing a person does to a display. Places are pixels from its top left.
type Action struct {
	Type   string `json:"type"` // move, click, drag, scroll, key or text
	X      int    `json:"x,omitempty"`
	Y      int    `json:"y,omitempty"`
	ToX    int    `json:"toX,omitempty"` // where a drag ends
	ToY    int    `json:"toY,omitempty"`
	Button string `json:"button,omitempty"` // left (the default), middle or right
	Count  int    `json:"count,omitempty"`  // clicks, 1 to 3; 0 is 1
	DX     int    `json:"dx,omitempty"`     // notches of the wheel to the right
	DY     int    `json:"dy,omitempty"`     // and down
	Key    string `json:"key,omitempty"`    // as browsers name it, with modifiers: Enter, Control+a
	Text   string `json:"text,omitempty"`   // in any script
}
