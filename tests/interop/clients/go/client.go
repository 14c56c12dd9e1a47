// Go's ZooKeeper client against one server: HOST:PORT. Prints `ok NAME` or `FAIL NAME: why` for each check.
package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/samuel/go-zookeeper/zk"
)

const (
	sessionTimeout = 6 * time.Second
	waitTimeout    = 20 * time.Second
)

var server string

type quiet struct{}

func (quiet) Printf(string, ...interface{}) {}

// connect returns a client that has a session, and its later connection events.
func connect() (*zk.Conn, <-chan zk.Event, error) {
	conn, events, err := zk.Connect([]string{server}, sessionTimeout, zk.WithLogger(quiet{}))
	if err != nil {
		return nil, nil, err
	}
	_, err = await(events, func(event zk.Event) bool { return event.State == zk.StateHasSession })
	return conn, events, err
}

func await(events <-chan zk.Event, wanted func(zk.Event) bool) (zk.Event, error) {
	deadline := time.After(waitTimeout)
	for {
		select {
		case event := <-events:
			if wanted(event) {
				return event, nil
			}
		case <-deadline:
			return zk.Event{}, errors.New("the event did not come")
		}
	}
}

func expect(what string, expected, actual interface{}) error {
	if !reflect.DeepEqual(expected, actual) {
		return fmt.Errorf("%s: expected %v, got %v", what, expected, actual)
	}
	return nil
}

// first returns the first error there is.
func first(failures ...error) error {
	for _, failure := range failures {
		if failure != nil {
			return failure
		}
	}
	return nil
}

func open() []zk.ACL { return zk.WorldACL(zk.PermAll) }

func create(conn *zk.Conn, path, data string, flags int32) error {
	_, err := conn.Create(path, []byte(data), flags, open())
	return err
}

func createAndRead(conn *zk.Conn) error {
	if err := create(conn, "/go", "one", 0); err != nil {
		return err
	}
	data, stat, err := conn.Get("/go")
	exists, _, existsErr := conn.Exists("/go")
	missing, _, missingErr := conn.Exists("/go-missing")
	return first(err, existsErr, missingErr,
		expect("data", "one", string(data)), expect("version", int32(0), stat.Version),
		expect("exists", true, exists), expect("missing exists", false, missing),
		expect("second create", zk.ErrNodeExists, create(conn, "/go", "", 0)),
		expect("no parent", zk.ErrNoNode, create(conn, "/go-missing/child", "", 0)))
}

func modes(conn *zk.Conn) error {
	if err := first(create(conn, "/modes", "", 0), create(conn, "/modes/e", "", zk.FlagEphemeral)); err != nil {
		return err
	}
	sequential, err := conn.Create("/modes/s-", nil, zk.FlagSequence, open())
	protected, protectedErr := conn.CreateProtectedEphemeralSequential("/modes/p-", nil, open())
	_, stat, statErr := conn.Exists("/modes/e")
	if err := first(err, protectedErr, statErr); err != nil {
		return err
	}
	return first(expect("sequential", "/modes/s-0000000001", sequential),
		expect("protected", true, strings.HasSuffix(protected, "-p-0000000002")),
		expect("owner", conn.SessionID(), stat.EphemeralOwner),
		expect("child of an ephemeral", zk.ErrNoChildrenForEphemerals, create(conn, "/modes/e/child", "", 0)))
}

func versions(conn *zk.Conn) error {
	if err := create(conn, "/versions", "one", 0); err != nil {
		return err
	}
	stat, err := conn.Set("/versions", []byte("two"), 0)
	if err != nil {
		return err
	}
	_, stale := conn.Set("/versions", nil, 0)
	return first(expect("version", int32(1), stat.Version), expect("stale set", zk.ErrBadVersion, stale),
		expect("stale delete", zk.ErrBadVersion, conn.Delete("/versions", 0)), conn.Delete("/versions", 1))
}

func children(conn *zk.Conn) error {
	if err := first(create(conn, "/children", "", 0), create(conn, "/children/a", "", 0), create(conn, "/children/b", "", 0)); err != nil {
		return err
	}
	names, stat, err := conn.Children("/children")
	if err != nil {
		return err
	}
	sort.Strings(names)
	return first(expect("names", []string{"a", "b"}, names), expect("count", int32(2), stat.NumChildren),
		expect("delete of a parent", zk.ErrNotEmpty, conn.Delete("/children", -1)))
}

func watches(conn *zk.Conn) error {
	_, _, created, err := conn.ExistsW("/watched")
	if err != nil {
		return err
	}
	other, _, err := connect()
	if err != nil {
		return err
	}
	defer other.Close()
	if err := create(other, "/watched", "", 0); err != nil {
		return err
	}
	event, err := await(created, func(zk.Event) bool { return true })
	_, _, changed, getErr := conn.GetW("/watched")
	_, _, childAdded, childrenErr := conn.ChildrenW("/watched")
	if err := first(err, getErr, childrenErr, expect("type", zk.EventNodeCreated, event.Type)); err != nil {
		return err
	}
	// The child comes first: this client ends its child watches at a change of data too.
	if err := create(other, "/watched/child", "", 0); err != nil {
		return err
	}
	event, err = await(childAdded, func(zk.Event) bool { return true })
	if err := first(err, expect("type", zk.EventNodeChildrenChanged, event.Type), expect("path", "/watched", event.Path)); err != nil {
		return err
	}
	if _, err := other.Set("/watched", nil, -1); err != nil {
		return err
	}
	event, err = await(changed, func(zk.Event) bool { return true })
	return first(err, expect("type", zk.EventNodeDataChanged, event.Type))
}

func multi(conn *zk.Conn) error {
	results, err := conn.Multi(
		&zk.CreateRequest{Path: "/multi", Data: []byte("one"), Acl: open()},
		&zk.CheckVersionRequest{Path: "/multi", Version: 0},
		&zk.SetDataRequest{Path: "/multi", Data: []byte("two"), Version: 0},
		&zk.CreateRequest{Path: "/multi/child", Acl: open()},
		&zk.DeleteRequest{Path: "/multi/child", Version: -1})
	if err != nil {
		return err
	}
	_, failure := conn.Multi(
		&zk.CreateRequest{Path: "/rolled-back", Acl: open()},
		&zk.SetDataRequest{Path: "/multi", Version: 42})
	exists, _, existsErr := conn.Exists("/rolled-back")
	return first(expect("created", "/multi", results[0].String), expect("version", int32(1), results[2].Stat.Version),
		expect("failure", zk.ErrBadVersion, failure), existsErr, expect("rolled back", false, exists))
}

func acl(conn *zk.Conn) error {
	stranger, _, err := connect()
	if err != nil {
		return err
	}
	defer stranger.Close()
	if err := conn.AddAuth("digest", []byte("owner:secret")); err != nil {
		return err
	}
	if _, err := conn.Create("/acl", nil, 0, zk.DigestACL(zk.PermAll, "owner", "secret")); err != nil {
		return err
	}
	stored, _, err := conn.GetACL("/acl")
	_, _, denied := stranger.Get("/acl")
	_, _, allowed := conn.Get("/acl")
	_, setErr := conn.SetACL("/acl", open(), 0)
	_, _, opened := stranger.Get("/acl")
	return first(err, expect("stored", zk.DigestACL(zk.PermAll, "owner", "secret"), stored),
		expect("a stranger's read", zk.ErrNoAuth, denied), allowed, setErr, opened)
}

func syncs(conn *zk.Conn) error {
	path, err := conn.Sync("/")
	return first(err, expect("path", "/", path))
}

func locks(conn *zk.Conn) error {
	const holders, rounds = 4, 5
	inside, most := 0, 0
	var guard sync.Mutex
	failures := make(chan error, holders)
	for i := 0; i < holders; i++ {
		go func() { failures <- lockRounds(rounds, &guard, &inside, &most) }()
	}
	for i := 0; i < holders; i++ {
		if err := <-failures; err != nil {
			return err
		}
	}
	return expect("most holders at once", 1, most)
}

func lockRounds(rounds int, guard *sync.Mutex, inside, most *int) error {
	conn, _, err := connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := 0; i < rounds; i++ {
		lock := zk.NewLock(conn, "/go-lock", open())
		if err := lock.Lock(); err != nil {
			return err
		}
		guard.Lock()
		*inside++
		if *inside > *most {
			*most = *inside
		}
		guard.Unlock()
		_, _, err := conn.Exists("/go-lock")
		guard.Lock()
		*inside--
		guard.Unlock()
		if err := first(err, lock.Unlock()); err != nil {
			return err
		}
	}
	return nil
}

func ephemeralsEnd(conn *zk.Conn) error {
	owner, _, err := connect()
	if err != nil {
		return err
	}
	if err := create(owner, "/ends", "", zk.FlagEphemeral); err != nil {
		return err
	}
	_, _, ended, err := conn.ExistsW("/ends")
	if err != nil {
		return err
	}
	owner.Close()
	event, err := await(ended, func(zk.Event) bool { return true })
	return first(err, expect("type", zk.EventNodeDeleted, event.Type))
}

func words(*zk.Conn) error {
	return expect("ruok", []bool{true}, zk.FLWRuok([]string{server}, waitTimeout))
}

func main() {
	server = os.Args[1]
	checks := []struct {
		name string
		run  func(*zk.Conn) error
	}{
		{"create_and_read", createAndRead},
		{"modes", modes},
		{"versions", versions},
		{"children", children},
		{"watches", watches},
		{"multi", multi},
		{"acl", acl},
		{"sync", syncs},
		{"locks", locks},
		{"ephemerals_end", ephemeralsEnd},
		{"words", words},
	}
	failed := 0
	for _, check := range checks {
		conn, _, err := connect()
		if err == nil {
			err = check.run(conn)
			conn.Close()
		}
		if err != nil {
			failed = 1
			fmt.Printf("FAIL %s: %v\n", check.name, err)
		} else {
			fmt.Printf("ok %s\n", check.name)
		}
	}
	os.Exit(failed)
}
