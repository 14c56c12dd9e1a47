"""Makes `twistd znoded` known to Twisted; nothing here may import a reactor."""

from twisted.application.service import ServiceMaker

serviceMaker = ServiceMaker("znoded", "znoded.service", "A coordination service for ZooKeeper clients.", "znoded")
