//! The fixed date that a chat template may print, and the part of `strftime` that templates use.

use super::error::TextError;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A day of the Gregorian calendar. Fixed in an experiment, so that a prompt is the same tomorrow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// # Errors
    /// [`TextError::BadDate`] for a day that does not exist.
    pub fn new(year: u16, month: u8, day: u8) -> Result<Self, TextError> {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let days = match month {
            2 => 28 + u8::from(leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let exists = (1..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days).contains(&day);
        if exists {
            Ok(Date { year, month, day })
        } else {
            Err(TextError::BadDate { year, month, day })
        }
    }

    /// Python's `strftime` in English at midnight, for `%Y %y %m %d %e %B %b %A %a %H %M %S %%` and a dash
    /// against padding (`%-d`). None at a directive beyond these.
    pub(super) fn strftime(self, format: &str) -> Option<String> {
        let mut text = String::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            let mut directive = chars.next()?;
            let padded = directive != '-';
            if !padded {
                directive = chars.next()?;
            }
            let month = MONTHS[usize::from(self.month) - 1];
            text += &match directive {
                'Y' => self.year.to_string(),
                'B' => month.to_owned(),
                'b' => month[..3].to_owned(),
                'A' => self.weekday().to_owned(),
                'a' => self.weekday()[..3].to_owned(),
                'e' => format!("{:2}", self.day),
                '%' => "%".to_owned(),
                'y' => number(self.year % 100, padded),
                'm' => number(self.month.into(), padded),
                'd' => number(self.day.into(), padded),
                'H' | 'M' | 'S' => number(0, padded),
                _ => return None,
            };
        }
        Some(text)
    }

    /// Sakamoto's method.
    fn weekday(self) -> &'static str {
        const OFFSETS: [u32; 12] = [0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = u32::from(self.year) - u32::from(self.month < 3);
        let days =
            year + year / 4 - year / 100 + year / 400 + OFFSETS[usize::from(self.month) - 1] + u32::from(self.day);
        DAYS[(days % 7) as usize]
    }
}

fn number(value: u16, padded: bool) -> String {
    if padded {
        format!("{value:02}")
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn prints_what_python_prints() {
        let date = Date::new(2024, 7, 6).unwrap();
        assert_eq!(date.strftime("%d %b %Y").unwrap(), "06 Jul 2024");
        assert_eq!(
            date.strftime("%A, %B %-d, %y|%e|%a|%m|%H:%M:%S|100%%").unwrap(),
            "Saturday, July 6, 24| 6|Sat|07|00:00:00|100%"
        );
        assert_eq!(Date::new(2000, 2, 29).unwrap().strftime("%a").unwrap(), "Tue");
        assert_eq!(Date::new(1, 1, 1).unwrap().strftime("%a").unwrap(), "Mon");
        assert_eq!((date.strftime("%Q"), date.strftime("%")), (None, None));
    }

    #[test]
    fn a_day_that_does_not_exist_is_refused() {
        for (year, month, day) in [
            (2023, 2, 29),
            (1900, 2, 29),
            (2024, 4, 31),
            (2024, 13, 1),
            (2024, 0, 1),
            (2024, 1, 0),
            (0, 1, 1),
        ] {
            assert_eq!(
                Date::new(year, month, day),
                Err(TextError::BadDate { year, month, day })
            );
        }
    }
}
